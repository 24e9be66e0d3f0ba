// @ts-check
/** The session with the scheduler: one for each pair of languages that people use. */

import { bothSpeak } from "./offer.js";
import { Session, SessionRefusedError } from "./sdk.js";

/** @import { Result, Session as OpenSession } from "./sdk.js" */
/** @import { Store } from "./store.js" */
/** @import { TokenKeeper } from "./token.js" */
/** @import { Languages } from "./types.js" */

/** How often live words may change. */
const PARTIAL_MS = 300;
/** A page that is left alone does not keep a session for longer. */
const IDLE_MS = 5 * 60_000;

/**
 * @typedef {object} Live a session of this page.
 * @property {number} number
 * @property {Languages} languages
 * @property {Promise<OpenSession>} opening
 */

export class Sessions {
  #store;
  #token;
  #onResult;
  #onIdle;
  /** @type {Live | null} */
  #current = null;
  /** @type {OpenSession | null} */
  #open = null;
  #count = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #idleTimer;

  /**
   * @param {Store} store
   * @param {TokenKeeper} token
   * @param {{ onResult: (number: number, result: Result) => void, onIdle: () => void }} listener
   */
  constructor(store, token, { onResult, onIdle }) {
    this.#store = store;
    this.#token = token;
    this.#onResult = onResult;
    this.#onIdle = onIdle;
  }

  /** The session for the languages that are chosen now; a new one if there is none. */
  get() {
    const { a, b } = this.#store.state.languages;
    const current = this.#current;
    if (current !== null && current.languages.a === a && current.languages.b === b) {
      return current;
    }
    this.leave();
    return this.#start({ a, b });
  }

  /** Ends the current session, if there is one. Its results still arrive. */
  leave() {
    clearTimeout(this.#idleTimer);
    const current = this.#current;
    this.#current = null;
    this.#open = null;
    current?.opening.then((session) => session.close()).catch(() => undefined);
  }

  /** Somebody does something: the session is needed. */
  touch() {
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => {
      this.leave();
      this.#onIdle();
    }, IDLE_MS);
  }

  playbackStarted() {
    this.#open?.playbackStarted();
  }

  playbackEnded() {
    this.#open?.playbackEnded();
  }

  /**
   * @param {Languages} languages
   * @returns {Live}
   */
  #start(languages) {
    this.#count += 1;
    const number = this.#count;
    const { directions } = this.#store.state.offer;
    this.#store.dispatch({ type: "session-opening", session: number });
    const opening = Session.open({
      addresses: location.origin,
      languages,
      partialIntervalMs: PARTIAL_MS,
      requireTts: bothSpeak(languages, directions),
      token: (refused) => this.#token.get(refused),
    });
    const live = { number, languages, opening };
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
          this.#onResult(number, event);
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
 * @param {"event" | "sent"} what
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
