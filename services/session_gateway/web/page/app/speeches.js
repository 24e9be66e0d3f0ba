// @ts-check
/** Plays translations in order, while nobody speaks, and keeps the last ones to play them again. */

import { problemOf } from "./sessions.js";

/** @import { Audio } from "./audio.js" */
/** @import { Speech } from "./sdk.js" */
/** @import { SpeechStore } from "./types.js" */

/** How many can be played again. A minute of speech takes about 2 MB. */
const MAX_KEPT = 30;

export class Speeches {
  #store;
  #audio;
  #mayPlay;
  /** By the utterance's key, oldest first. @type {Map<string, Speech>} */
  #kept = new Map();
  /** Keys of those that have not been played yet. @type {string[]} */
  #queue = [];
  #playing = false;

  /**
   * @param {SpeechStore} store
   * @param {Audio} audio
   * @param {() => boolean} mayPlay whether nobody speaks: the microphone would hear the speech.
   */
  constructor(store, audio, mayPlay) {
    this.#store = store;
    this.#audio = audio;
    this.#mayPlay = mayPlay;
  }

  /** Whether speech is played or about to be. */
  get busy() {
    return this.#playing;
  }

  /**
   * @param {string} key of the utterance.
   * @param {Speech} speech
   */
  add(key, speech) {
    this.#kept.set(key, speech);
    this.#store.dispatch({ type: "speech", key, has: true });
    for (const old of [...this.#kept.keys()].slice(0, -MAX_KEPT)) {
      this.#kept.delete(old);
      this.#store.dispatch({ type: "speech", key: old, has: false });
    }
    this.#queue.push(key);
    void this.pump();
  }

  /** Plays what waits, as long as nobody speaks. Call it when somebody has stopped. */
  async pump() {
    if (this.#playing) {
      return;
    }
    this.#playing = true;
    while (this.#mayPlay()) {
      const key = this.#queue.shift();
      if (key === undefined) {
        break;
      }
      await this.#play(key);
    }
    this.#playing = false;
  }

  /**
   * Plays one again; or stops it, if it is being played.
   *
   * @param {string} key
   */
  async replay(key) {
    const wasPlaying = this.#store.state.playing === key;
    this.stop();
    if (!wasPlaying) {
      this.#queue.unshift(key);
      await this.pump();
    }
  }

  /** Stops: somebody wants to speak, or has heard enough. What waits is not played by itself. */
  stop() {
    this.#queue.length = 0;
    this.#audio.player.stop();
  }

  /** @param {string} key */
  async #play(key) {
    const speech = this.#kept.get(key);
    if (speech === undefined) {
      return;
    }
    this.#store.dispatch({ type: "playing", key });
    try {
      await this.#audio.player.play(speech);
    } catch (error) {
      this.#store.dispatch({ type: "problem", problem: problemOf(error) });
    }
    this.#store.dispatch({ type: "playing", key: "" });
  }
}
