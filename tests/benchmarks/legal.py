"""Whether a changed row of Adult, or of the phishing pages, is legal: written by hand, it shares nothing with Space."""

from collections.abc import Callable, Sequence

FIXED = ("marital-status", "relationship", "race", "sex", "native-country")
ADULT_ENDS = {"age": (17, 90), "capital-gain": (0, 99999), "capital-loss": (0, 4356), "hours-per-week": (1, 99)}
ADULT_COST = {"education": 2, "capital-gain": 3, "capital-loss": 3}
RATES = ("PctExtHyperlinks", "PctExtResourceUrls", "PctNullSelfRedirectHyperlinks")
TERNARY = (
    *("SubdomainLevelRT", "UrlLengthRT", "PctExtResourceUrlsRT", "AbnormalExtFormActionR", "ExtMetaScriptLinkRT"),
    "PctExtNullSelfRedirectHyperlinksRT",
)
COUNTS = (
    *("NumDots", "SubdomainLevel", "PathLevel", "UrlLength", "NumDash", "NumDashInHostname", "NumUnderscore"),
    *("NumPercent", "NumQueryComponents", "NumAmpersand", "NumNumericChars", "HostnameLength", "PathLength"),
    *("QueryLength", "NumSensitiveWords"),
)
FOLLOWS = ("UrlLength", "UrlLengthRT", "PctExtNullSelfRedirectHyperlinksRT")
ADDRESS = ("HostnameLength", "SubdomainLevel", "NumDashInHostname", "IpAddress")

Judged = tuple[list[str], int, int]
"""What is wrong, how many things changed, what they cost."""


def words(names: Sequence[str], row: Sequence[float]) -> dict[str, float | str]:
    """A row by column; the columns of a category are exactly one 1 and else 0, or the category is None."""
    found: dict[str, float | str] = {}
    groups: dict[str, list[tuple[str, float]]] = {}
    for name, value in zip(names, row, strict=True):
        group, sign, word = name.partition("=")
        if sign:
            groups.setdefault(group, []).append((word, value))
        else:
            found[name] = value
    for group, members in groups.items():
        ones = [word for word, value in members if value == 1]
        others = [word for word, value in members if value not in (0, 1)]
        found[group] = ones[0] if len(ones) == 1 and not others else "none"
    return found


def adult(names: Sequence[str], before: Sequence[float], after: Sequence[float]) -> Judged:
    """A person of Adult."""
    old, new = words(names, before), words(names, after)
    wrong = [f"{name} changed" for name in FIXED if old[name] != new[name]]
    wrong += [f"{name} has no word" for name, value in new.items() if value == "none"]
    for name, (low, high) in ADULT_ENDS.items():
        value = new[name]
        if not isinstance(value, float) or value != int(value) or not low <= value <= high:
            wrong.append(f"{name} = {value}")
    if not 0 <= float(new["age"]) - float(old["age"]) <= 5:
        wrong.append("age falls, or rises by more than 5")
    changed = [name for name in old if old[name] != new[name]]
    return wrong, len(changed), sum(ADULT_COST.get(name, 1) for name in changed)


def page(new: dict[str, float]) -> list[str]:
    """What is wrong with a page by itself."""
    wrong = [f"{name} = {new[name]}" for name in RATES if not 0 <= new[name] <= 1]
    wrong += [f"{name} = {new[name]}" for name in TERNARY if new[name] not in (-1, 0, 1)]
    wrong += [f"{name} = {new[name]}" for name in COUNTS if new[name] != int(new[name]) or new[name] < 0]
    flags = set(new) - {*RATES, *TERNARY, *COUNTS, "HttpsInHostname"}
    wrong += [f"{name} = {new[name]}" for name in flags if new[name] not in (0, 1)]
    length = new["HostnameLength"] + new["PathLength"] + new["QueryLength"] + 8 - new["NoHttps"]
    if new["UrlLength"] != length + (1 if new["QueryLength"] > 0 else 0):
        wrong.append(f"UrlLength = {new['UrlLength']} is not the sum of its parts")
    if new["UrlLengthRT"] != (1 if new["UrlLength"] < 54 else 0 if new["UrlLength"] <= 75 else -1):
        wrong.append("UrlLengthRT does not follow UrlLength")
    share = new["PctExtHyperlinks"] + new["PctNullSelfRedirectHyperlinks"]
    # Single precision keeps shares to seven digits.
    codes = {1 if part < 0.31 else 0 if part <= 0.67 else -1 for part in (share - 1e-6, share, share + 1e-6)}
    if new["PctExtNullSelfRedirectHyperlinksRT"] not in codes:
        wrong.append("PctExtNullSelfRedirectHyperlinksRT does not follow the shares")
    orders: list[tuple[str, str]] = [
        ("NumDashInHostname", "NumDash"),
        ("SubdomainLevel", "NumDots"),
        ("NumQueryComponents", "QueryLength"),
        ("NumAmpersand", "NumQueryComponents"),
        ("PathLevel", "PathLength"),
        ("DoubleSlashInPath", "PathLength"),
    ]
    wrong += [f"{low} > {high}" for low, high in orders if new[low] > new[high]]
    signs = ("NumDots", "NumDash", "NumUnderscore", "NumPercent", "NumNumericChars", "NumAmpersand")
    if sum(new[name] for name in signs) > new["UrlLength"]:
        wrong.append("more signs than characters")
    if 2 * new["SubdomainLevel"] > new["HostnameLength"]:
        wrong.append("a host name too short for its parts")
    return wrong


def phishing(names: Sequence[str], before: Sequence[float], after: Sequence[float]) -> Judged:
    """A page that pretends to be another."""
    old, new = dict(zip(names, before, strict=True)), dict(zip(names, after, strict=True))
    wrong = page(new)
    if old["HttpsInHostname"] != new["HttpsInHostname"]:
        wrong.append("HttpsInHostname changed")
    changed = [name for name in names if old[name] != new[name] and name not in FOLLOWS]
    return wrong, len(changed), sum(3 if name in ADDRESS else 1 for name in changed)


JUDGES: dict[str, Callable[[Sequence[str], Sequence[float], Sequence[float]], Judged]] = {
    "adult": adult,
    "phishing": phishing,
}
