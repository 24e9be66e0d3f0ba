"""The talk page in a browser, as a person sees and uses it."""

from typing import Literal

from playwright.sync_api import Locator

from tests.browser.recorded_page import RecordedPage

Side = Literal["a", "b"]


class TalkPage(RecordedPage):
    """One tab with the talk page."""

    def open(self, fragment: str = "", *, ready: bool = True) -> None:
        """Loads the page; returns when both sides can choose a language, unless not `ready`."""
        self.page.goto(f"{self.url}/{fragment}")
        if ready:
            self.until_languages()

    def until_languages(self) -> None:
        """Returns when both sides can choose a language."""
        options = self.page.locator("select[data-role=language] > option:not([value=''])")
        self.until(lambda: options.count() >= 4, "able to choose languages")

    def ask_languages(self) -> None:
        """Makes the page ask for the languages now, as if somebody came back to the tab."""
        self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    # What is on the page.

    def side(self, side: Side) -> Locator:
        """The half of one person."""
        return self.page.locator(f"section[data-side={side}]")

    def language(self, side: Side) -> Locator:
        """Where that person chooses a language."""
        return self.side(side).locator("select[data-role=language]")

    def talk_button(self, side: Side) -> Locator:
        """What that person holds to talk."""
        return self.side(side).locator("button[data-action=talk]")

    def utterances(self, side: Side, state: str = "") -> Locator:
        """What was said, as that half shows it: all of it, or only in one state."""
        wanted = f"[data-state={state}]" if state else "[data-state]"
        return self.side(side).locator(f"ol[data-role=utterances] > li{wanted}")

    # What a person does.

    def choose(self, a: str, b: str) -> None:
        """Both choose their languages."""
        self.language("a").select_option(a)
        self.language("b").select_option(b)

    def press(self, side: Side) -> None:
        """Holds the talk button of a side with the mouse."""
        self.page.mouse.move(*self.talk_place(side))
        self.page.mouse.down()

    def talk_place(self, side: Side) -> tuple[float, float]:
        """The middle of the talk button of a side."""
        box = self.talk_button(side).bounding_box()
        assert box is not None
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def release(self) -> None:
        """Lets the talk button go."""
        self.page.mouse.up()

    def speak(self, side: Side, seconds: float = 1.0) -> None:
        """Holds the button until so much speech was sent, and lets it go."""
        self.press(side)
        self.until_sent(seconds)
        self.release()

    def until_settled(self) -> None:
        """Returns when everything that was said is translated or missing."""
        pending = ", ".join(f"li[data-state={state}]" for state in ("speaking", "waiting"))
        self.until(
            lambda: self.sent()[-1]["detail"]["isFinal"] and not self.page.locator(pending).count(),
            "everything is settled",
        )
