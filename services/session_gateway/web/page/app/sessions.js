// @ts-check
/** The session with the scheduler: one for each pair of languages that people use. */

import { bothSpeak } from "./offer.js";
import { Session, SessionRefusedError } from "./sdk.js";

/** @import { Direction, Result, Session as OpenSession } from "./sdk.js" */
/** @import { TokenKeeper } from "./token.js" */
/** @import { Languages, Side, TalkStore } from "./types.js" */

/** How often live words may change. */
const PARTIAL_MS = 300;
/** A page that is left alone does not keep a session for longer. */
const IDLE_MS = 5 * 60_000;

/**
 * @typedef {object} Live a session of this page.
 * @property {number} number
 * @property {Languages} languages
 * @property {(side: Side) => Direction | undefined} directionOf what a person speaks, and its target;
 *   undefined if the session knows that.
 * @property {boolean} spoken whether translations are to be spoken.
 * @property {Promise<OpenSession>} opening
 * @property {number} takes how many takes are being sent.
 * @property {boolean} isLeft whether it ends as soon as they are sent.
 */

/**
 * @typedef {object} Listener
 * @property {(number: number, result: Result) => void} onResult
 * @property {() => void} onIdle nobody has used the page for a while.
 * @property {() => boolean} isHearing whether somebody speaks.
 */

export class Sessions {
  #store;
  #token;
  #listener;
  /** @type {Live | null} */
  #current = null;
  /** @type {OpenSession | null} */
  #open = null;
  #count = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #idleTimer;

  /**
   * @param {TalkStore} store
   * @param {TokenKeeper} token
   * @param {Listener} listener
   */
  constructor(store, token, listener) {
    this.#store = store;
    this.#token = token;
    this.#listener = listener;
  }

  /**
   * Begins a take: returns the session for the languages that are chosen now, which does not end
   * before `done`.
   *
   * @returns {Live}
   */
  begin() {
    const live = this.#get();
    live.takes += 1;
    return live;
  }

  /**
   * A take is sent, or cannot be.
   *
   * @param {Live} live
   */
  done(live) {
    live.takes -= 1;
    if (live.isLeft && live.takes === 0) {
      close(live);
    }
  }

  /** The next take opens a new session. This one ends once its takes are sent; its results arrive. */
  leave() {
    clearTimeout(this.#idleTimer);
    const current = this.#current;
    this.#current = null;
    this.#open = null;
    if (current !== null) {
      current.isLeft = true;
      if (current.takes === 0) {
        close(current);
      }
    }
  }

  /** The page is left: nothing more can be sent. */
  abandon() {
    if (this.#current !== null) {
      close(this.#current);
    }
    this.leave();
  }

  /** Opens a session now, instead of the current one. */
  restart() {
    this.leave();
    this.#get();
  }

  /** Somebody does something: the session is needed. */
  touch() {
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => this.#idle(), IDLE_MS);
  }

  #idle() {
    if (this.#listener.isHearing()) {
      this.touch();
      return;
    }
    this.leave();
    this.#listener.onIdle();
  }

  /** Whether somebody can speak: both languages are known. */
  get isReady() {
    const { a, b } = this.#store.state.languages;
    return a !== "" && b !== "";
  }

  /** The session for what is chosen now; a new one if there is none. */
  #get() {
    const { languages, offer } = this.#store.state;
    const { a, b } = languages;
    const spoken = bothSpeak(languages, offer.directions);
    const current = this.#current;
    if (
      current !== null &&
      current.languages.a === a &&
      current.languages.b === b &&
      current.spoken === spoken
    ) {
      return current;
    }
    this.leave();
    return this.#start({ a, b }, spoken);
  }

  playbackStarted() {
    this.#open?.playbackStarted();
  }

  playbackEnded() {
    this.#open?.playbackEnded();
  }

  /**
   * @param {Languages} languages
   * @param {boolean} spoken
   * @returns {Live}
   */
  #start(languages, spoken) {
    this.#count += 1;
    const number = this.#count;
    this.#store.dispatch({ type: "session-opening", session: number });
    const opening = Session.open({
      addresses: location.origin,
      languages,
      partialIntervalMs: PARTIAL_MS,
      requireTts: spoken,
      token: (refused) => this.#token.get(refused),
    });
    const { a, b } = languages;
    /** @param {Side} side */
    const directionOf = (side) => (side === "a" ? { src: a, tgt: b } : { src: b, tgt: a });
    const live = { number, languages, directionOf, spoken, opening, takes: 0, isLeft: false };
    this.#current = live;
    this.touch();
    void this.#run(live);
    return live;
  }

  /** @param {Live} live */
  async #run(live) {
    const { number, languages } = live;
    try {
      const session = await live.opening;
      const { sessionId } = session;
      if (this.#current === live) {
        this.#open = session;
      }
      this.#store.dispatch({ type: "session-opened", session: number, id: sessionId });
      for await (const event of session.events()) {
        announce("event", { ...withoutSpeech(event), sessionId });
        this.#store.dispatch({ type: "session-event", session: number, languages, event });
        if (event.type === "result") {
          this.#listener.onResult(number, event);
        }
        if (this.#current === live) {
          this.touch();
        }
      }
      this.#store.dispatch({ type: "session-closed", session: number });
    } catch (error) {
      this.#lost(live, error);
    }
    if (this.#current === live) {
      this.#current = null;
      this.#open = null;
    }
  }

  /**
   * @param {Live} live
   * @param {unknown} error
   */
  #lost(live, error) {
    const { reason, detail } = problemOf(error);
    this.#store.dispatch({ type: "session-lost", session: live.number, reason: "SESSION_LOST" });
    if (this.#current !== live) {
      return;
    }
    this.#store.dispatch({ type: "problem", problem: { reason, detail } });
    if (error instanceof SessionRefusedError && reason === "UNAUTHENTICATED") {
      void this.#token.ask();
    }
  }
}

/** @param {Live} live */
function close({ opening }) {
  opening.then((session) => session.close()).catch(() => undefined);
}

/**
 * What the page shows for an error.
 *
 * @param {unknown} error
 */
export function problemOf(error) {
  const reason =
    error instanceof Error && "reason" in error && typeof error.reason === "string"
      ? error.reason
      : "OTHER";
  const detail = error instanceof Error ? error.message : String(error);
  return { reason, detail: detail.slice(0, 500) };
}

/**
 * Tells the document, for apps and tests that look on.
 *
 * @param {"event" | "room" | "sent"} what
 * @param {object} detail
 */
export function announce(what, detail) {
  document.dispatchEvent(new CustomEvent(`lingua:${what}`, { detail }));
}

/** @param {import("./types.js").SessionEvent} event */
function withoutSpeech(event) {
  if (event.type !== "result") {
    return event;
  }
  const { speech, ...rest } = event;
  return { ...rest, speechBytes: speech.length };
}
