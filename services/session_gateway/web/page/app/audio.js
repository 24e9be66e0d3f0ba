// @ts-check
/** The microphone and the loudspeaker, over one audio context. */

import { Microphone, Player } from "./sdk.js";

/** @import { Microphone as OpenMicrophone, Player as OpenPlayer } from "./sdk.js" */

export class Audio {
  /** @type {AudioContext | null} */
  #context = null;
  /** @type {OpenPlayer | null} */
  #player = null;
  /** @type {Promise<OpenMicrophone> | null} */
  #opening = null;
  /** @type {OpenMicrophone | null} */
  #microphone = null;
  #listener;

  /** @param {{ playbackStarted(): void, playbackEnded(): void }} listener */
  constructor(listener) {
    this.#listener = listener;
  }

  /** Call it in the handler of every tap and key: browsers make no sound before. */
  unlock() {
    if (!("AudioContext" in globalThis)) {
      return;
    }
    this.#context ??= new AudioContext();
    // iOS also has "interrupted", after a phone call.
    if (this.#context.state !== "running" && this.#context.state !== "closed") {
      this.#context.resume().catch(() => undefined);
    }
  }

  get player() {
    if (this.#player === null) {
      const session = this.#listener;
      const context = this.#context;
      this.#player = new Player(context === null ? { session } : { session, context });
    }
    return this.#player;
  }

  /** The level of the microphone, from 0 to 1. */
  get level() {
    return this.#microphone?.level ?? 0;
  }

  /**
   * Turns the microphone on, if it is off. Throws MicrophoneError.
   *
   * @returns {Promise<OpenMicrophone>}
   */
  microphone() {
    if (this.#opening === null) {
      this.unlock();
      const options = this.#context === null ? {} : { context: this.#context };
      const opening = Microphone.open(options);
      this.#opening = opening;
      opening.then(
        (microphone) => {
          if (this.#opening === opening) {
            this.#microphone = microphone;
          } else {
            void microphone.close();
          }
        },
        () => this.#forget(opening),
      );
    }
    return this.#opening;
  }

  /** Turns the microphone off; the browser stops showing that the page listens. */
  closeMicrophone() {
    void this.#microphone?.close();
    this.#opening = null;
    this.#microphone = null;
  }

  /** @param {Promise<OpenMicrophone>} opening */
  #forget(opening) {
    if (this.#opening === opening) {
      this.#opening = null;
    }
  }
}
