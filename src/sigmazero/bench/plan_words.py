"""The words of a plan: what each table may hold, and what that means. Plans are checked against them."""

SETTINGS = {
    "steps": "steps of the attacks; each has its own number by default",
    "budgets": "a list of numbers of changes: one cell for each; attacks within a budget need it",
    "unit": '`"feature"` counts every value, `"pixel"` a position once for all its channels',
    "goal": '`"untargeted"` or `"targeted"`',
    "target": 'for targeted attacks: `"next"` (the class after the true one), `"random"`, or the number of a class',
    "seed": "for attacks that draw; 0 by default",
    "margin": "the least by which a success must hold in the logits; 0 by default",
    "precision": 'numbers of the search: `"fp32"`, `"tf32"`, `"bf16"`, `"fp64"`; those of the process by default',
}
_BATCH = {"batch_size": "rows that are searched together; no result depends on it"}

PLAN = {
    "name": "the plan's name, and that of its store; the file's name by default",
    "description": "a line for people",
    **SETTINGS,
    **_BATCH,
    "models": "tables `[models.NAME]`",
    "data": "tables `[data.NAME]`",
    "attacks": "tables `[attacks.NAME]`",
    "space": "a table `[space]`: what may change",
    "grid": "one table `[[grid]]` or more",
}
GRID = {
    "models": "names: of the zoo, `file.py:build`, or of tables `[models.NAME]`",
    "data": "names: of data sets, files or folders, or of tables `[data.NAME]`",
    "attacks": "names: of the registry, `library:name`, or of tables `[attacks.NAME]`",
    "space": "what may change in this grid",
    **SETTINGS,
    **_BATCH,
}
MODEL = {
    "spec": "what to load: a code of the zoo, `file.py:build`, `package.module:build`, a `.pt2` or `.onnx` file",
    "weights": "a state dict for it, also as safetensors",
    "normalize": "in front of the network: `MEAN,STD`, or `mnist`, `cifar10`, `imagenet`",
}
DATA = {
    "source": "a data set's name, an `.npz` file, a table, a folder of pictures ending in `/`, or `module:function`",
    "rows": 'which rows: `"0:100"`, `"5,7,9"`, or a list of numbers',
    "limit": "at most so many of them: the first, or with a seed a choice",
    "seed": "for that choice",
    "space": "what may change in these rows",
}
ATTACK = {
    "attack": 'the attack that this is a form of; `"foolbox:L0FMNAttack"` is one of another library',
    "parameters": "its parameters, such as `{ threshold = 0.2 }`",
    "sweep": "lists of values, such as `{ threshold = [0.1, 0.3] }`: one attack for each combination",
    "trace": "`true` keeps every point that was asked about; rows then run one at a time",
    **SETTINGS,
}
SPACE = {"file": "a space file; or instead of it what such a file holds"}
TABLES = {
    "At the top": PLAN,
    "[[grid]]": GRID,
    "[models.NAME]": MODEL,
    "[data.NAME]": DATA,
    "[attacks.NAME]": ATTACK,
    "[space]": SPACE,
}
