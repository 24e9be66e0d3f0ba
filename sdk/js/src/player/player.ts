/** Plays the speech of results, in order. */

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

/** How long a browser gets to start playing; if it does not, nobody has tapped yet. */
const START_MS = 2000;

interface Item {
  readonly sound: Sound;
  readonly resolve: (played: Played) => void;
  readonly reject: (error: unknown) => void;
}

/** Speech whose turn has come. It has no source until the browser lets the page play. */
interface Playing {
  source: AudioBufferSourceNode | null;
  isStopped: boolean;
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
  #current: Playing | null = null;
  #running = false;
  #closed = false;

  constructor({ session, context }: PlayerOptions = {}) {
    this.#session = session;
    this.#context = context ?? null;
    this.#ownsContext = context === undefined;
  }

  /** Whether speech is being played. */
  get playing(): boolean {
    return this.#current?.source != null;
  }

  /**
   * Allows the page to play sound. Call it in the handler of a tap, before the first speech:
   * browsers play nothing before that, and iOS wants the context made and resumed in there.
   */
  async unlock(): Promise<void> {
    await this.#open().resume();
  }

  /**
   * Plays speech after what is being played already. Returns when it has ended. Playing the same
   * speech again is fine.
   *
   * Throws PlayerError: UNSUPPORTED_FORMAT, or BLOCKED if the user has not tapped yet.
   */
  async play(speech: Speech): Promise<Played> {
    return this.#add(speech, false);
  }

  /** Plays speech at once, instead of what is being played now; then goes on with what waits. */
  async replay(speech: Speech): Promise<Played> {
    const played = this.#add(speech, true);
    this.#stopCurrent();
    return played;
  }

  /** Stops, and drops what waits. */
  stop(): void {
    for (const item of this.#queue.splice(0)) {
      item.resolve("stopped");
    }
    this.#stopCurrent();
  }

  /** Stops, and gives the audio device back. */
  async close(): Promise<void> {
    this.stop();
    this.#closed = true;
    if (this.#ownsContext) {
      await this.#context?.close();
    }
    this.#context = null;
  }

  #open(): AudioContext {
    if (this.#closed) {
      throw new PlayerError("CLOSED", "the player is closed");
    }
    if (!("AudioContext" in globalThis) && this.#context === null) {
      throw new PlayerError("NOT_SUPPORTED", "this runtime has no AudioContext");
    }
    this.#context ??= new AudioContext();
    return this.#context;
  }

  async #add({ speech, speechFormat }: Speech, first: boolean): Promise<Played> {
    this.#open();
    const sound = soundOf(speech, speechFormat);
    return new Promise((resolve, reject) => {
      const item = { sound, resolve, reject };
      if (first) {
        this.#queue.unshift(item);
      } else {
        this.#queue.push(item);
      }
      void this.#run();
    });
  }

  /** Plays everything that waits. */
  async #run(): Promise<void> {
    if (this.#running) {
      return;
    }
    this.#running = true;
    let started = false;
    for (let item = this.#queue.shift(); item !== undefined; item = this.#queue.shift()) {
      const playing: Playing = { source: null, isStopped: false };
      this.#current = playing;
      try {
        const context = this.#open();
        await running(context);
        if (!playing.isStopped) {
          if (!started) {
            started = true;
            this.#session?.playbackStarted();
          }
          await playOut(context, item.sound, playing);
        }
        item.resolve(playing.isStopped ? "stopped" : "played");
      } catch (error) {
        item.reject(error);
      }
      this.#current = null;
    }
    this.#running = false;
    if (started) {
      this.#session?.playbackEnded();
    }
  }

  #stopCurrent(): void {
    if (this.#current !== null) {
      this.#current.isStopped = true;
      this.#current.source?.stop();
    }
  }
}

/** Plays a sound to its end, or until its source is stopped. */
async function playOut(context: AudioContext, sound: Sound, playing: Playing): Promise<void> {
  const { sampleRateHz, channels } = sound;
  const buffer = context.createBuffer(channels.length, channels[0]?.length ?? 0, sampleRateHz);
  channels.forEach((samples, channel) => {
    buffer.copyToChannel(samples, channel);
  });
  const source = context.createBufferSource();
  source.buffer = buffer;
  source.connect(context.destination);
  playing.source = source;
  await new Promise<void>((resolve) => {
    source.onended = (): void => {
      resolve();
    };
    source.start();
  });
  source.disconnect();
}

/** Returns when the context plays. Throws PlayerError if the browser does not let it. */
async function running(context: AudioContext): Promise<void> {
  if (context.state === "running") {
    return;
  }
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const what = "the browser plays sound only after a tap: call unlock() in its handler";
      reject(new PlayerError("BLOCKED", what));
    }, START_MS);
  });
  try {
    await Promise.race([context.resume(), late]);
  } finally {
    clearTimeout(timer);
  }
}
