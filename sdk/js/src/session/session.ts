/** A session as app developers see it. */

import type { AudioFormat } from "../audio-format.js";
import { SessionError } from "../errors.js";
import type { Limits, Outcome, SessionEvent } from "../events.js";
import { audioFrame } from "../protocol/frames.js";
import { SessionProtocol } from "../protocol/machine.js";
import type { Counts, SessionState } from "../protocol/state.js";
import type { Outgoing } from "../protocol/stream.js";
import { parseAddresses } from "./addresses.js";
import { Channel } from "./channel.js";
import { Cutter } from "./chunks.js";
import type { Sorting } from "./inbox.js";
import { checkOptions, type SessionOptions } from "./options.js";
import { type Audio, Sender, type SendOptions } from "./sender.js";
import { TokenSource } from "./tokens.js";

/** Audio that the SDK keeps because no server has acknowledged it. */
export interface Unacknowledged {
  readonly chunks: number;
  readonly bytes: number;
}

export const SESSION_SORTING: Sorting<SessionEvent, Outcome> = {
  isOutcome: (event) => event.type === "result" || event.type === "missing",
  bytesOf: (event) => (event.type === "result" ? event.speech.length : 0),
  keyOf: (event) => (event.type === "partial" ? event.index : null),
};

/**
 * Streams speech to a gateway and receives translations.
 *
 *     const session = await Session.open({
 *       addresses: "wss://example.org",
 *       languages: { src: "en", tgt: "es" },
 *     });
 *     await session.send(samples, { isFinal: true });
 *     await session.close();
 *     for await (const result of session.results()) { ... }
 *
 * It reconnects and resumes by itself. Audio is kept until the server has acknowledged it, and each
 * result is given once and in order, whatever happens to connections and gateways.
 */
export class Session {
  /** The format of all audio that is sent. */
  readonly audioFormat: AudioFormat;
  #protocol: SessionProtocol;
  #state: SessionState;
  #channel: Channel<SessionEvent, Outcome, Outgoing>;
  #sender: Sender;

  private constructor(options: SessionOptions) {
    const checked = checkOptions(options);
    const addresses = parseAddresses(options.addresses);
    this.audioFormat = checked.audioFormat;
    this.#protocol = new SessionProtocol({
      newSession: checked.newSession,
      random: Math.random,
      reconnectMs: checked.reconnectMs,
    });
    this.#state = this.#protocol.state;
    this.#channel = new Channel({
      protocol: this.#protocol,
      addresses,
      token: new TokenSource(options.token),
      webSocket: checked.webSocket,
      encode: (frame) =>
        frame.kind === "audio" ? audioFrame(frame.chunk) : JSON.stringify(frame.message),
      sorting: SESSION_SORTING,
    });
    this.#sender = new Sender({
      state: this.#state,
      cutter: new Cutter(checked.audioFormat, checked.directions, checked.chunkMs),
      maxUnacknowledgedBytes: checked.maxUnacknowledgedBytes,
      checkWritable: () => {
        this.#checkWritable();
      },
      wake: () => {
        this.#channel.wake();
      },
      until: (condition) => this.#channel.until(condition),
    });
  }

  // ---- opening and closing ----

  /**
   * Opens a session.
   *
   * Throws RangeError or TypeError for wrong options; SessionRefusedError if the gateway refuses the
   * session and a retry cannot help; SessionUnavailableError if no gateway opened it in time.
   */
  static async open(options: SessionOptions): Promise<Session> {
    const session = new Session(options);
    session.#channel.start();
    await session.#channel.until(() => session.#state.isKnown);
    return session;
  }

  /**
   * Ends the session. Returns when all results have arrived; they can still be read then. Throws
   * SessionLostError if the session was lost before its end.
   */
  async close(): Promise<void> {
    await this.#sender.close();
  }

  /** Drops the session at once. What was not acknowledged or not received is lost. */
  abort(): void {
    this.#channel.abort("ABORTED", "the app left the session before its end");
  }

  // ---- sending ----

  /**
   * Sends audio that was recorded just now. Also works while there is no connection.
   *
   * Returns when the SDK has taken over the audio. It waits while more than
   * `maxUnacknowledgedBytes` are unacknowledged. Calls keep their order even without `await`, but
   * too many of them throw BufferFullError.
   *
   * Throws RangeError for wrong arguments (nothing was sent), SessionLostError if the session was
   * lost.
   */
  async send(audio: Audio, options: SendOptions = {}): Promise<void> {
    await this.#sender.send(audio, options);
  }

  /**
   * Ends the utterance: the speaker has finished. The same as `send` with `isFinal`, without audio.
   *
   * Audio that a microphone still delivers within the server's hangover (about 200 ms of audio)
   * joins the utterance. An app that sends on at once, for example from files, should await
   * `drained` in between.
   */
  async finish(): Promise<void> {
    await this.#sender.finish();
  }

  /** The app is playing speech: until `playbackEnded`, silence is not a pause. */
  playbackStarted(): void {
    this.#setPlaying(true);
  }

  /** The app has stopped playing speech. */
  playbackEnded(): void {
    this.#setPlaying(false);
  }

  /**
   * Returns when the server has acknowledged all audio, so that the SDK keeps none. The server
   * acknowledges an utterance once it is cut and accepted, usually some time after `finish`.
   */
  async drained(): Promise<void> {
    await this.#channel.until(() => this.#state.kept.unacknowledged === 0);
  }

  // ---- receiving ----

  /**
   * Everything that happens, in order, from the opening to the end of the session.
   *
   * An unread partial text is replaced by the next one of its utterance. Nothing else is dropped,
   * unless `results()` is read and this is not: then only the newest events are kept. Throws
   * SessionLostError after the last event of a session that was lost.
   */
  events(): AsyncIterableIterator<SessionEvent, undefined> {
    return this.#channel.events();
  }

  /**
   * Results and missing utterances only: each index once, in order, to the session's end.
   *
   * They are kept until they are read, even if `events()`, which also has them, is read too. A
   * second iterator continues where the first stopped. Throws SessionLostError after the last
   * result of a session that was lost.
   */
  results(): AsyncIterableIterator<Outcome, undefined> {
    return this.#channel.results();
  }

  // ---- properties ----

  /** The session's id for operators' tools. */
  get sessionId(): string {
    return this.#state.sessionId;
  }

  /** What the server allows. */
  get limits(): Limits {
    return this.#state.limits;
  }

  /** The W3C trace context of the session, for the app's own spans; or "". */
  get traceparent(): string {
    return this.#state.traceparent;
  }

  /** Whether the session is open at a gateway now. */
  get connected(): boolean {
    return this.#protocol.opened && !this.#channel.done;
  }

  /** Whether the session has ended, by `close` or because it was lost. */
  get ended(): boolean {
    return this.#channel.done;
  }

  /** The audio that no server has acknowledged. */
  get unacknowledged(): Unacknowledged {
    return { chunks: this.#state.kept.unacknowledged, bytes: this.#state.kept.bytes };
  }

  /** Totals of the session so far. */
  get counts(): Counts {
    return this.#state.counts;
  }

  // ---- the inside ----

  #setPlaying(playing: boolean): void {
    // Playback may outlast the session.
    if (!this.#channel.done && !this.#state.over) {
      this.#state.playing = playing;
      this.#channel.wake();
    }
  }

  #checkWritable(): void {
    this.#channel.checkFailure();
    if (this.#state.closing) {
      throw new SessionError("CLOSED", "the session is closed: nothing more can be sent");
    }
    if (this.#state.over) {
      throw this.#state.lost("CLOSED", "the server has closed the session");
    }
  }
}
