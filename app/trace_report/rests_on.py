"""What the predictions on a trace's regions rest on, said once for all of them. Pure functions of the API's objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from app.analysis.basis_json import compile_words, measured_words
from app.objects.basis import RestsOn
from app.objects.region import RegionBody
from app.units import count


def rests_on_words(regions: Iterable[RegionBody]) -> str:
    """Whose measurements, and whose kernels torch.compile's times are of; "" where nothing is predicted."""
    rests = [known for region in regions if (known := region.get("rests_on"))]
    if not rests:
        return ""
    measured = Counter(measured_words(each) for each in rests)
    return " ".join([*measured, _compile_words(rests)])


def _compile_words(rests: list[RestsOn]) -> str:
    words = Counter(compile_words(each) for each in rests)
    if len(words) == 1:
        return next(iter(words))
    by_kernels = sum(each["prediction"] == "oracle" for each in rests)
    if not by_kernels:
        return "torch.compile's times are by our fusion rules: each region says why."
    return (
        f"torch.compile's kernels are Inductor's own list in {count(by_kernels, 'region')} of {len(rests)}; in the "
        "others its time is by our fusion rules, and each says why."
    )
