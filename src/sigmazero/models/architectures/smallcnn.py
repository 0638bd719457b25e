"""The small convolutional network of the MNIST experiments (M1, M2)."""

from collections import OrderedDict

from torch import Tensor, nn


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
