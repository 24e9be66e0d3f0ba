"""The last release and the working tree side by side, through an upgrade and a roll-back."""

import pytest

from tests.upgrade.deployment import ALL, SPLIT, Deployment
from tests.upgrade.releases import NoReleaseError, Release, new_release, old_release
from tests.upgrade.rolling import SPLIT_MIXES, Rolling

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def old() -> Release:
    """The last release."""
    try:
        return old_release()
    except NoReleaseError as error:
        pytest.skip(f"no release to upgrade from: {error}")


async def test_an_upgrade_and_a_roll_back_under_load_break_no_promise(old: Release) -> None:
    new = new_release()
    with Deployment(SPLIT, old) as deployment:
        rolling = Rolling(deployment, old, new)
        await rolling.begin()
        await rolling.roll(new)
        await rolling.roll(old)
        outcome = await rolling.end()
    print(f"{old.version} and {new.version}\n{outcome.told()}")
    assert not outcome.violations[:20]
    assert not [mix for mix in SPLIT_MIXES if not outcome.mixes[mix]]


@pytest.mark.long
async def test_processes_with_all_services_are_upgraded_and_rolled_back(old: Release) -> None:
    new = new_release()
    with Deployment(ALL, old) as deployment:
        rolling = Rolling(deployment, old, new)
        await rolling.begin()
        await rolling.roll(new)
        await rolling.roll(old)
        outcome = await rolling.end()
    print(outcome.told())
    assert not outcome.violations[:20]
