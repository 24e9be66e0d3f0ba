// @ts-check
/** What the user can do, and how the parts of the room page work together. */

import { Audio } from "../app/audio.js";
import { Offers } from "../app/offers.js";
import { watchPage } from "../app/page-events.js";
import { problemOf } from "../app/sessions.js";
import { Speeches } from "../app/speeches.js";
import { Talking } from "../app/talking.js";
import { TokenKeeper } from "../app/token.js";
import { Entrance, readAddress } from "./entrance.js";
import { invitationOf } from "./link.js";
import { Listening } from "./listening.js";
import { storeChoices } from "./memory.js";
import { Speaking } from "./speaking.js";

/** @import { Interface, RoomStore } from "./types.js" */

/** How long to wait before the languages are asked for again, if the room's token is refused. */
const REFUSED_MS = 5_000;

export class Controller {
  #store;
  #token;
  #offers;
  #audio;
  #listening;
  #speaking;
  #speeches;
  #talking;
  #entrance;

  /** @param {RoomStore} store */
  constructor(store) {
    this.#store = store;
    // A link to a room has a token of the room, which is not for everything else.
    const invited = readAddress();
    this.#token = new TokenKeeper(store);
    const token = this.#token;
    this.#offers = new Offers(store, {
      get current() {
        return store.state.invitation?.token || token.current;
      },
      ask: () => this.#onOfferRefused(),
    });
    this.#audio = new Audio({ playbackStarted: () => {}, playbackEnded: () => {} });
    this.#speeches = new Speeches(store, this.#audio, () => true);
    this.#listening = new Listening(store, (key, speech) => this.#speeches.add(key, speech));
    this.#speaking = new Speaking(store);
    this.#talking = new Talking(store, this.#audio, this.#speaking, {
      onStart: () => {},
      onQuiet: () => {},
      isPlaying: () => false,
    });
    this.#entrance = new Entrance(store, token, this.#listening, this.#speaking);
    this.#entrance.begin(invited);
  }

  start() {
    void this.#offers.ask();
    watchPage({
      onGesture: () => this.#audio.unlock(),
      onBlur: () => this.release(),
      onHidden: () => {
        this.#talking.end();
        this.#audio.closeMicrophone();
      },
      onLeave: () => {
        this.#talking.end();
        this.#speaking.close();
        this.#listening.leave();
        this.#audio.closeMicrophone();
      },
    });
    // Somebody opens another link in this tab.
    addEventListener("hashchange", () => {
      const invited = readAddress();
      if (invited !== null && invited.token !== this.#invitation?.token) {
        this.#quit();
        this.#entrance.begin(invited);
      }
    });
  }

  get #invitation() {
    return this.#store.state.invitation;
  }

  // ---- coming ----

  async #onOfferRefused() {
    if (this.#invitation === null) {
      await this.#token.ask();
    } else {
      // The room says what is wrong with its token.
      this.#store.dispatch({ type: "offer-failed" });
      await new Promise((resolve) => setTimeout(resolve, REFUSED_MS));
    }
  }

  /**
   * @param {string} pasted
   * @returns {boolean} whether it is a link to a room.
   */
  follow(pasted) {
    const invitation = invitationOf(pasted);
    if (invitation === null) {
      return false;
    }
    location.hash = pasted.slice(pasted.indexOf("#")).trim();
    return true;
  }

  /** @param {string} roomName */
  async create(roomName) {
    this.#audio.unlock();
    await this.#entrance.create(roomName);
  }

  /** @param {boolean} speaks */
  async enter(speaks) {
    this.#audio.unlock();
    await this.#entrance.enter(speaks);
  }

  // ---- inside ----

  /** After the connection was lost for too long. */
  async again() {
    await this.enter(this.#store.state.speaks);
  }

  /** @param {string} language */
  async choose(language) {
    const { view, speaks, language: before } = this.#store.state;
    this.#store.dispatch({ type: "choose", language });
    storeChoices(this.#store.state);
    if (view === "inside" && !speaks) {
      await this.#change({ language }, () =>
        this.#store.dispatch({ type: "choose", language: before }),
      );
    }
  }

  /** @param {boolean} on */
  async setSound(on) {
    this.#audio.unlock();
    this.#store.dispatch({ type: "sound", on });
    storeChoices(this.#store.state);
    if (!on) {
      this.#speeches.stop();
    }
    if (this.#store.state.view === "inside") {
      await this.#change({ speech: on }, () => this.#store.dispatch({ type: "sound", on: !on }));
    }
  }

  /**
   * @param {{ language?: string, speech?: boolean }} wanted
   * @param {() => void} undo if the room does not allow it.
   */
  async #change(wanted, undo) {
    try {
      await this.#listening.change(wanted);
    } catch (error) {
      undo();
      this.#store.dispatch({ type: "problem", problem: problemOf(error) });
    }
  }

  /** @param {string} name */
  setName(name) {
    this.#store.dispatch({ type: "named", name });
  }

  /** @param {boolean} open */
  setPanel(open) {
    this.#store.dispatch({ type: "panel", open });
  }

  /** @param {string} key */
  replay(key) {
    this.#audio.unlock();
    void this.#speeches.replay(key);
  }

  /** @param {boolean} on whether to ask, before the room is closed. */
  setClosing(on) {
    this.#store.dispatch({ type: "closing", on });
  }

  /** Closes the room for everybody. */
  async closeRoom() {
    this.#talking.end();
    this.#store.dispatch({ type: "closing", on: false });
    try {
      await this.#entrance.room.close();
    } catch (error) {
      this.#store.dispatch({ type: "problem", problem: problemOf(error) });
    }
  }

  /** Leaves the room, and forgets it. */
  leave() {
    this.#quit();
    this.#entrance.forget();
    void this.#offers.ask();
  }

  #quit() {
    this.#talking.end();
    this.#speeches.stop();
    this.#speaking.close();
    this.#listening.leave();
    this.#audio.closeMicrophone();
  }

  // ---- talking ----

  /** The microphone's level, from 0 to 1. */
  get level() {
    return this.#audio.level;
  }

  press() {
    void this.#talking.hold("a");
  }

  release() {
    if (!this.#store.state.handsFree) {
      this.#talking.end();
    }
  }

  /** Ends talking, whatever started it. */
  stop() {
    this.#talking.end();
  }

  toggle() {
    void this.#talking.toggle("a");
  }

  /** @param {boolean} on */
  setHandsFree(on) {
    this.#talking.end();
    this.#store.dispatch({ type: "hands-free", on });
    storeChoices(this.#store.state);
  }

  // ---- the page ----

  /** @param {Interface} chosen */
  setInterface(chosen) {
    this.#store.dispatch({ type: "interface", interface: chosen });
    storeChoices(this.#store.state);
  }

  dismiss() {
    this.#store.dispatch({ type: "problem", problem: null });
  }

  /** @param {string} token */
  async useToken(token) {
    if (await this.#token.use(token)) {
      this.dismiss();
      void this.#offers.ask();
    }
  }

  leaveToken() {
    this.#token.dismiss();
    this.#store.dispatch({ type: "problem", problem: { reason: "UNAUTHENTICATED", detail: "" } });
  }

  askToken() {
    this.dismiss();
    this.#token.remind();
    void this.#token.ask();
  }
}
