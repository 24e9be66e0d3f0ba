"""The room page in a browser, as a host, a speaker or a listener sees and uses it."""

from typing import NamedTuple

from playwright.sync_api import Locator, expect

from tests.browser.recorded_page import RecordedPage
from tests.support.records import Record


class Caption(NamedTuple):
    """A line of the page."""

    index: int
    language: str
    text: str


class RoomPage(RecordedPage):
    """One tab with the room page."""

    def open(self, address: str = "") -> None:
        """Loads the page.

        Args:
            address: a whole link, or only the fragment of the address.
        """
        is_link = address.startswith("http")
        self.page.goto(address if is_link else f"{self.url}/room{address}")

    # What is on the page.

    def view(self, name: str) -> Locator:
        """The view of this name: start, lobby or inside."""
        return self.page.locator(f"[data-view={name}]")

    @property
    def language(self) -> Locator:
        """Where the person chooses a language."""
        return self.page.locator("select[data-role=language]")

    @property
    def talk_button(self) -> Locator:
        """What a speaker holds to talk."""
        return self.page.locator("button[data-action=talk]")

    def lines(self, state: str = "") -> Locator:
        """What was said, with an index: all of it, or only in one state."""
        wanted = f"[data-state={state}]" if state else ""
        return self.page.locator(f"ol[data-role=lines] > li[data-index]{wanted}")

    def captions(self) -> list[Caption]:
        """All lines as they are shown now."""
        found: list[list[str]] = self.lines().evaluate_all(
            """all => all.map((each) => [
              each.dataset.index, each.dataset.language,
              each.querySelector("[data-role=text]").textContent.trim()])"""
        )
        return [Caption(int(index), language, text) for index, language, text in found]

    def receipts(self) -> Locator:
        """What became of what was said here."""
        return self.page.locator("[data-role=receipt]")

    def people(self, language: str) -> Locator:
        """How many listen to a language, as a speaker sees it."""
        return self.page.locator(f"ul[data-role=languages] > li[data-language={language}]")

    def link(self, role: str) -> str:
        """The link for others, once it is made."""
        field = self.page.locator(f"[data-role=link-{role}]")
        expect(field).to_be_attached()
        return field.get_attribute("data-link") or ""

    # What a person does.

    def make(self, *, language: str, name: str = "", room: str = "") -> None:
        """Makes a room, and returns when its host is in it."""
        self.page.locator("input[name=room]").fill(room)
        self.page.locator("input[name=name]").fill(name)
        self.language.select_option(language)
        self.page.locator("button[data-action=create]").click()
        expect(self.view("inside")).to_be_visible()
        self.expect_connection("connected")

    def enter(
        self, *, language: str, speak: bool = False, sound: bool = False, name: str = ""
    ) -> None:
        """Enters the room of the link that is open."""
        expect(self.view("lobby")).to_be_visible()
        self.page.locator("input[name=name]").fill(name)
        self.choose(language)
        if not speak:
            self.page.locator("input[name=sound]").set_checked(sound)
        self.page.locator(f"button[data-action={'speak' if speak else 'listen'}]").click()
        expect(self.view("inside")).to_be_visible()
        self.expect_connection("connected")

    def choose(self, language: str) -> None:
        """Chooses a language, once it is offered."""
        expect(self.language.locator(f"option[value={language}]")).to_be_attached()
        self.language.select_option(language)

    def press(self) -> None:
        """Holds the talk button with the mouse."""
        box = self.talk_button.bounding_box()
        assert box is not None
        self.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        self.page.mouse.down()

    def release(self) -> None:
        """Lets the talk button go."""
        self.page.mouse.up()

    def speak(self, seconds: float = 0.5) -> None:
        """Holds the button until so much speech was sent, and lets it go."""
        self.press()
        self.until_sent(seconds)
        self.release()

    # What it records.

    def room_events(self, *types: str) -> list[Record]:
        """Events of its listener, as the SDK has them."""
        events = [each["detail"] for each in self.told("room")]
        return [each for each in events if not types or each["type"] in types]

    def heard(self) -> list[int]:
        """The room indexes that its listener was given, in the order in which they came."""
        return [each["roomIndex"] for each in self.room_events("said", "not-said")]

    def until_heard(self, *indexes: int) -> None:
        """Returns when the listener was given these utterances, and no others."""
        self.until(lambda: len(self.heard()) >= len(indexes), f"at {indexes}")
        assert tuple(self.heard()) == indexes, self.explain()
