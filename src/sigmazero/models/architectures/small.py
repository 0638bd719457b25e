"""Small networks: SmallCNN of the MNIST experiments (M1, M2), and those bundled for digits and for tables."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from sigmazero.data import Standardize


class SmallCNN(nn.Module):
    """Four 3x3 convolutions without padding and three linear layers, for 1x28x28 images."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_extractor = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(1, 32, 3),
                relu1=nn.ReLU(),
                conv2=nn.Conv2d(32, 32, 3),
                relu2=nn.ReLU(),
                pool1=nn.MaxPool2d(2),
                conv3=nn.Conv2d(32, 64, 3),
                relu3=nn.ReLU(),
                conv4=nn.Conv2d(64, 64, 3),
                relu4=nn.ReLU(),
                pool2=nn.MaxPool2d(2),
            )
        )
        self.classifier = nn.Sequential(
            OrderedDict(
                fc1=nn.Linear(64 * 4 * 4, 200),
                relu1=nn.ReLU(),
                drop=nn.Dropout(0.5),
                fc2=nn.Linear(200, 200),
                relu2=nn.ReLU(),
                fc3=nn.Linear(200, 10),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits."""
        logits: Tensor = self.classifier(self.feature_extractor(x).flatten(1))
        return logits


class DemoCNN(nn.Sequential):
    """Classify digits (1×28×28 in [0, 1]) with about 0.1 M weights, without normalisation or dropout.

    >>> import torch
    >>> DemoCNN()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 48, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(48 * 5 * 5, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )


class TableMLP(nn.Sequential):
    """Classify rows of a table, in the user's units. The first layer standardises by statistics in its state dict.

    >>> import torch
    >>> TableMLP(features=5, hidden=[8], classes=3)(torch.zeros(2, 5)).shape
    torch.Size([2, 3])
    """

    def __init__(self, features: int, hidden: Sequence[int] = (64, 64), classes: int = 2) -> None:
        widths = [features, *hidden]
        layers: list[nn.Module] = [Standardize(features)]
        for width, following in pairwise(widths):
            layers += [nn.Linear(width, following), nn.ReLU()]
        super().__init__(*layers, nn.Linear(widths[-1], classes))
