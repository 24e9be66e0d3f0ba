// @ts-check
/** What the user can do, and how the parts of the page work together. */

import { Audio } from "./audio.js";
import { storeChoices } from "./choices.js";
import { Offers } from "./offers.js";
import { watchPage } from "./page-events.js";
import { Sessions } from "./sessions.js";
import { Speeches } from "./speeches.js";
import { Talking } from "./talking.js";
import { TokenKeeper } from "./token.js";

/** @import { Result } from "./sdk.js" */
/** @import { Interface, Side, TalkStore, Utterance } from "./types.js" */

export class Controller {
  #store;
  #token;
  #offers;
  #audio;
  #sessions;
  /** @type {Speeches} */
  #speeches;
  /** @type {Talking} */
  #talking;

  /** @param {TalkStore} store */
  constructor(store) {
    this.#store = store;
    this.#token = new TokenKeeper(store);
    this.#offers = new Offers(store, this.#token);
    this.#audio = new Audio({
      playbackStarted: () => {
        this.#talking.pause();
        this.#sessions.playbackStarted();
      },
      playbackEnded: () => this.#sessions.playbackEnded(),
    });
    this.#sessions = new Sessions(store, this.#token, {
      onResult: (number, result) => this.#keepSpeech(number, result),
      onIdle: () => {
        this.#talking.end();
        this.#audio.closeMicrophone();
      },
      isHearing: () => this.#talking.hears,
    });
    this.#speeches = new Speeches(store, this.#audio, () => !this.#talking.hears);
    this.#talking = new Talking(store, this.#audio, this.#sessions, {
      onStart: () => this.#speeches.stop(),
      onQuiet: () => void this.#speeches.pump(),
      isPlaying: () => this.#speeches.busy,
    });
  }

  /**
   * @param {number} session
   * @param {Result} result
   */
  #keepSpeech(session, result) {
    const found = this.#store.state.utterances.find(
      (each) => each.known && each.session === session && each.index === result.index,
    );
    if (found !== undefined && result.kind === "TRANSLATED" && result.speech.length > 0) {
      this.#speeches.add(found.key, result);
    }
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
        this.#sessions.abandon();
        this.#audio.closeMicrophone();
      },
    });
    // Somebody opens a link with a token in a tab that has the page already.
    addEventListener("hashchange", () => {
      if (this.#token.readAddress()) {
        this.dismiss();
        void this.#offers.ask();
      }
    });
  }

  /** The microphone's level, from 0 to 1. */
  get level() {
    return this.#audio.level;
  }

  /** @param {Side} side */
  press(side) {
    this.#token.remind();
    void this.#talking.hold(side);
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

  /** @param {Side} side */
  toggle(side) {
    this.#token.remind();
    void this.#talking.toggle(side);
  }

  /**
   * @param {Side} side
   * @param {string} language
   */
  choose(side, language) {
    this.#store.dispatch({ type: "choose", side, language });
    if (this.#store.state.talk === null) {
      this.#sessions.leave();
    }
    storeChoices(this.#store.state);
  }

  /** @param {boolean} on */
  setHandsFree(on) {
    this.#talking.end();
    this.#store.dispatch({ type: "hands-free", on });
    storeChoices(this.#store.state);
  }

  turn() {
    this.#store.dispatch({ type: "turn" });
    storeChoices(this.#store.state);
  }

  /** @param {Interface} chosen */
  setInterface(chosen) {
    this.#store.dispatch({ type: "interface", interface: chosen });
    storeChoices(this.#store.state);
  }

  /** @param {Utterance} utterance */
  replay(utterance) {
    this.#audio.unlock();
    void this.#speeches.replay(utterance.key);
  }

  dismiss() {
    this.#store.dispatch({ type: "problem", problem: null });
  }

  /** A new session, now. */
  restart() {
    this.dismiss();
    this.#token.remind();
    this.#sessions.restart();
  }

  /** @param {string} token */
  async useToken(token) {
    if (await this.#token.use(token)) {
      this.dismiss();
      void this.#offers.ask();
    }
  }

  /** Opens the dialog for a token. */
  askToken() {
    this.dismiss();
    this.#token.remind();
    void this.#token.ask();
  }

  /** Closes it without a token: the page says what that means. */
  leaveToken() {
    this.#token.dismiss();
    this.#store.dispatch({ type: "problem", problem: { reason: "UNAUTHENTICATED", detail: "" } });
  }
}
