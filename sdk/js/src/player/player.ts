/** Plays the speech of results, in order. */

import { restart, starts } from "../audio-context.js";
import type { AudioFormat } from "../audio-format.js";
import { PlayerError } from "../errors.js";
import { type Sound, soundOf } from "./speech-audio.js";

/** Speech that can be played: a `Result`, or anything else that has these. */
export interface Speech {
  /** 16-bit PCM in `speechFormat`, or a WAV file. */
  readonly speech: Uint8Array;
  readonly speechFormat: AudioFormat | null;
}

/** Who is told when playback starts and ends: a `Session`. */
export interface PlaybackListener {
  playbackStarted(): void;
  playbackEnded(): void;
}

export interface PlayerOptions {
  /** The session to tell, so that it does not take the silence meanwhile for a pause. */
  readonly session?: PlaybackListener;
  /** By default a context is made by `unlock`. */
  readonly context?: AudioContext;
}

/** How it ended: to the end, or because of `stop` or `replay`. */
export type Played = "played" | "stopped";

interface Item {
  readonly sound: Sound;
  readonly resolve: (played: Played) => void;
  readonly reject: (error: unknown) => void;
}

/** Speech whose turn has come. */
class Turn {
  /** Null until the browser lets the page play. */
  source: AudioBufferSourceNode | null = null;
  isStopped = false;
  /** Resolves when it is stopped. A context that does not run never says that a sound has ended. */
  readonly stopped: Promise<void>;
  #resolve: () => void = () => undefined;

  constructor() {
    this.stopped = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  stop(): void {
    this.isStopped = true;
    this.source?.stop();
    this.#resolve();
  }
}

/**
 * Plays speech, one piece after the other.
 *
 *     const player = new Player({ session });
 *     button.onclick = () => player.unlock();
 *     for await (const result of session.results()) {
 *       if (result.type === "result" && result.speech.length > 0) void player.play(result);
 *     }
 */
export class Player {
  readonly #session: PlaybackListener | undefined;
  #context: AudioContext | null;
  readonly #ownsContext: boolean;
  readonly #queue: Item[] = [];
  #current: Turn | null = null;
  #isRunning = false;
  /** Resolves when everything that waited was played. */
  #done: Promise<void> = Promise.resolve();
  #closed = false;

  constructor({ session, context }: PlayerOptions = {}) {
    this.#session = session;
    this.#context = context ?? null;
    this.#ownsContext = context === undefined;
    context?.addEventListener("statechange", this.#onStateChange);
  }

  /** Whether speech is being played. */
  get playing(): boolean {
    return this.#current?.source != null;
  }

  /**
   * Allows the page to play sound. Call it in the handler of a tap, before the first speech:
   * browsers play nothing before that, and iOS wants the context made and resumed in there.
   *
   * Throws PlayerError: BLOCKED if it is not the handler of a tap.
   */
  async unlock(): Promise<void> {
    if (!(await starts(this.#open()))) {
      throw blocked();
    }
  }

  /**
   * Plays speech after what is being played already. Returns when it has ended. Playing the same
   * speech again is fine.
   *
   * Throws PlayerError: UNSUPPORTED_FORMAT, or BLOCKED if the user has not tapped yet.
   */
  async play(speech: Speech): Promise<Played> {
    return this.#add(this.#soundOf(speech), false);
  }

  /** Plays speech at once, instead of what is being played now; then goes on with what waits. */
  async replay(speech: Speech): Promise<Played> {
    const sound = this.#soundOf(speech);
    this.#current?.stop();
    return this.#add(sound, true);
  }

  /** Stops, and drops what waits. */
  stop(): void {
    for (const item of this.#queue.splice(0)) {
      item.resolve("stopped");
    }
    this.#current?.stop();
  }

  /** Stops, and gives the audio device back. */
  async close(): Promise<void> {
    this.stop();
    this.#closed = true;
    const context = this.#context;
    this.#context = null;
    context?.removeEventListener("statechange", this.#onStateChange);
    await this.#done;
    if (this.#ownsContext && context !== null && context.state !== "closed") {
      await context.close();
    }
  }

  /** Speech that a phone call interrupts goes on after it. */
  readonly #onStateChange = (): void => {
    const context = this.#context;
    if (context?.state === "closed") {
      this.stop();
    } else if (context !== null && this.#current !== null) {
      restart(context);
    }
  };

  #open(): AudioContext {
    if (this.#closed || this.#context?.state === "closed") {
      throw new PlayerError("CLOSED", "the player is closed");
    }
    if (!("AudioContext" in globalThis) && this.#context === null) {
      throw new PlayerError("NOT_SUPPORTED", "this runtime has no AudioContext");
    }
    if (this.#context === null) {
      this.#context = new AudioContext();
      this.#context.addEventListener("statechange", this.#onStateChange);
    }
    return this.#context;
  }

  #soundOf({ speech, speechFormat }: Speech): Sound {
    this.#open();
    return soundOf(speech, speechFormat);
  }

  async #add(sound: Sound, first: boolean): Promise<Played> {
    return new Promise((resolve, reject) => {
      const item = { sound, resolve, reject };
      if (first) {
        this.#queue.unshift(item);
      } else {
        this.#queue.push(item);
      }
      if (!this.#isRunning) {
        this.#done = this.#run();
      }
    });
  }

  /** Plays everything that waits. */
  async #run(): Promise<void> {
    this.#isRunning = true;
    let started = false;
    for (let item = this.#queue.shift(); item !== undefined; item = this.#queue.shift()) {
      const turn = new Turn();
      this.#current = turn;
      try {
        const context = this.#open();
        const isReady = await starts(context, turn.stopped);
        if (!turn.isStopped) {
          if (!isReady) {
            throw blocked();
          }
          if (!started) {
            started = true;
            this.#session?.playbackStarted();
          }
          await playOut(context, item.sound, turn);
        }
        item.resolve(turn.isStopped ? "stopped" : "played");
      } catch (error) {
        item.reject(error);
      }
      this.#current = null;
    }
    this.#isRunning = false;
    if (started) {
      this.#session?.playbackEnded();
    }
  }
}

/** Plays a sound to its end, or until its turn is stopped. */
async function playOut(context: AudioContext, sound: Sound, turn: Turn): Promise<void> {
  const { sampleRateHz, channels } = sound;
  const buffer = context.createBuffer(channels.length, channels[0]?.length ?? 0, sampleRateHz);
  channels.forEach((samples, channel) => {
    buffer.copyToChannel(samples, channel);
  });
  const source = context.createBufferSource();
  source.buffer = buffer;
  source.connect(context.destination);
  const ended = new Promise<void>((resolve) => {
    source.onended = (): void => {
      resolve();
    };
  });
  source.start();
  turn.source = source;
  await Promise.race([ended, turn.stopped]);
  source.disconnect();
}

function blocked(): PlayerError {
  const what = "the browser plays sound only after a tap: call unlock() in its handler";
  return new PlayerError("BLOCKED", what);
}
