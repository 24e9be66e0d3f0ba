/** The microphone of a browser. */

import { restart, starts } from "../audio-context.js";
import type { AudioFormat } from "../audio-format.js";
import { MicrophoneError, type MicrophoneReason } from "../errors.js";
import { Recording, type RecordingOptions } from "./recording.js";
import { Resampler, toInt16 } from "./resampler.js";

export interface MicrophoneOptions {
  /**
   * The rate of the samples; 16000 by default, which is what speech recognition needs. "device": as
   * recorded, or 48000 if that is more.
   */
  readonly sampleRateHz?: number | "device";
  /** Which microphone, as `navigator.mediaDevices.enumerateDevices` names it. */
  readonly deviceId?: string;
  /** Further wishes, such as `{ noiseSuppression: false }`. */
  readonly constraints?: MediaTrackConstraints;
  /**
   * Where the file microphone/worklet.js of this package is. By default it is expected beside this
   * module, which is right unless a bundler has moved the one and not the other.
   */
  readonly workletUrl?: string | URL;
  /** Made and resumed in the handler of a tap, which iOS requires. By default a new one is made. */
  readonly context?: AudioContext;
}

const SPEECH_RATE_HZ = 16_000;
/** The largest rate that a session accepts. */
const MAX_RATE_HZ = 48_000;

const REASONS: Readonly<Record<string, [MicrophoneReason, string]>> = {
  NotAllowedError: ["NO_PERMISSION", "access to the microphone was denied"],
  SecurityError: ["NO_PERMISSION", "the page's policy forbids the use of the microphone"],
  NotFoundError: ["NO_DEVICE", "there is no microphone"],
  OverconstrainedError: ["NO_DEVICE", "no microphone is as the constraints want it"],
  NotReadableError: [
    "DEVICE_BUSY",
    "the microphone is in use, or the system does not give it away",
  ],
  AbortError: ["DEVICE_BUSY", "the microphone could not be started"],
};

/**
 * Records speech, at whatever rate the device has, and delivers it at the rate that is wanted.
 *
 * `Microphone.open` asks for permission and turns the microphone on; the browser shows that until
 * `close`. `record` starts a recording, as often as the app likes.
 */
export class Microphone {
  /** The format of what is recorded, for `Session.open`. */
  readonly format: AudioFormat;
  /** The rate at which the device records. */
  readonly deviceRateHz: number;
  readonly #context: AudioContext;
  readonly #ownsContext: boolean;
  readonly #stream: MediaStream;
  readonly #source: MediaStreamAudioSourceNode;
  readonly #worklet: AudioWorkletNode;
  readonly #resampler: Resampler;
  readonly #recordings = new Set<Recording>();
  #closed = false;
  #level = 0;

  private constructor(context: AudioContext, stream: MediaStream, options: MicrophoneOptions) {
    this.#context = context;
    this.#ownsContext = options.context === undefined;
    this.#stream = stream;
    // Firefox refuses a context with another rate than the microphone's, so take what there is.
    this.deviceRateHz = Math.round(context.sampleRate);
    const wanted = options.sampleRateHz ?? SPEECH_RATE_HZ;
    const sampleRateHz = wanted === "device" ? Math.min(this.deviceRateHz, MAX_RATE_HZ) : wanted;
    this.format = { encoding: "PCM_S16LE", sampleRateHz, channels: 1 };
    this.#resampler = new Resampler(this.deviceRateHz, sampleRateHz);
    this.#source = context.createMediaStreamSource(stream);
    this.#worklet = new AudioWorkletNode(context, "lingua-recorder", {
      numberOfInputs: 1,
      numberOfOutputs: 0,
      channelCount: 1,
      channelCountMode: "explicit",
    });
    this.#worklet.port.onmessage = (event: MessageEvent<Float32Array>): void => {
      this.#onBlock(event.data);
    };
    this.#source.connect(this.#worklet);
    for (const track of stream.getAudioTracks()) {
      track.onended = (): void => {
        const what = "the microphone was unplugged, or access to it was withdrawn";
        this.#lose(new MicrophoneError("DEVICE_LOST", what));
      };
    }
    context.addEventListener("statechange", this.#onStateChange);
  }

  /** iOS suspends the context during a phone call. */
  readonly #onStateChange = (): void => {
    restart(this.#context);
  };

  /**
   * Turns the microphone on. Call it in the handler of a tap: iOS requires that.
   *
   * Throws MicrophoneError, whose `reason` says what is wrong.
   */
  static async open(options: MicrophoneOptions = {}): Promise<Microphone> {
    checkBrowser();
    // Made before anything is awaited, as long as the tap counts.
    const context = options.context ?? new AudioContext();
    let stream: MediaStream | null = null;
    try {
      restart(context);
      stream = await request(options);
      await loadWorklet(context, options.workletUrl);
      if (!(await starts(context))) {
        const what = "the browser records only after a tap: call open() in its handler";
        throw new MicrophoneError("BLOCKED", what);
      }
      return new Microphone(context, stream, options);
    } catch (error) {
      stream?.getTracks().forEach((track) => {
        track.stop();
      });
      if (options.context === undefined) {
        await context.close().catch(() => undefined);
      }
      throw error;
    }
  }

  /** Starts a recording. */
  record(options: RecordingOptions = {}): Recording {
    if (this.#closed) {
      throw new MicrophoneError("DEVICE_LOST", "the microphone is closed");
    }
    const recording = new Recording(this.format.sampleRateHz, options, (ended) => {
      this.#recordings.delete(ended);
    });
    this.#recordings.add(recording);
    return recording;
  }

  /** How loud it is, from 0 to 1, for meters. */
  get level(): number {
    return this.#level;
  }

  /** Turns the microphone off, and ends all recordings. */
  async close(): Promise<void> {
    if (this.#closed) {
      return;
    }
    this.#release();
    for (const recording of [...this.#recordings]) {
      recording.stop();
    }
    if (this.#ownsContext) {
      await this.#context.close();
    }
  }

  #release(): void {
    this.#closed = true;
    this.#context.removeEventListener("statechange", this.#onStateChange);
    this.#worklet.port.postMessage("stop");
    this.#worklet.port.onmessage = null;
    this.#source.disconnect();
    for (const track of this.#stream.getTracks()) {
      track.onended = null;
      track.stop();
    }
  }

  #lose(error: MicrophoneError): void {
    this.#release();
    for (const recording of [...this.#recordings]) {
      recording.fail(error);
    }
    if (this.#ownsContext) {
      this.#context.close().catch(() => undefined);
    }
  }

  #onBlock(block: Float32Array): void {
    const samples = this.#resampler.push(block);
    this.#level = samples.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
    // The filter is behind by a few milliseconds; a pause is hundreds of times longer.
    const recordedAt = Date.now();
    for (const recording of this.#recordings) {
      recording.put(toInt16(samples), recordedAt);
    }
  }
}

function checkBrowser(): void {
  const {
    isSecureContext,
    navigator,
    AudioWorkletNode: worklet,
  } = globalThis as {
    readonly isSecureContext?: boolean;
    readonly navigator?: { readonly mediaDevices?: unknown };
    readonly AudioWorkletNode?: unknown;
  };
  if (isSecureContext === false) {
    const what = "a page can use the microphone only if it was loaded by https or from localhost";
    throw new MicrophoneError("NO_SECURE_CONTEXT", what);
  }
  if (navigator?.mediaDevices === undefined || worklet === undefined) {
    const what = "this browser has no getUserMedia or no AudioWorklet";
    throw new MicrophoneError("NOT_SUPPORTED", what);
  }
}

async function request({ deviceId, constraints }: MicrophoneOptions): Promise<MediaStream> {
  const audio: MediaTrackConstraints = {
    channelCount: 1,
    // The page plays speech while it listens.
    echoCancellation: true,
    noiseSuppression: true,
    autoGainControl: true,
    ...(deviceId === undefined ? {} : { deviceId: { exact: deviceId } }),
    ...constraints,
  };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (error) {
    const name = error instanceof Error ? error.name : "";
    const [reason, message] = REASONS[name] ?? ["NOT_SUPPORTED", `getUserMedia failed: ${name}`];
    throw new MicrophoneError(reason, message, { cause: error });
  }
}

async function loadWorklet(context: AudioContext, given: string | URL | undefined): Promise<void> {
  const url = given ?? new URL("./worklet.js", import.meta.url);
  try {
    await context.audioWorklet.addModule(url);
  } catch (error) {
    const what =
      `${String(url)} could not be loaded: is the file there (workletUrl), and does the page's ` +
      "content security policy allow it (script-src)?";
    throw new MicrophoneError("WORKLET_FAILED", what, { cause: error });
  }
}
