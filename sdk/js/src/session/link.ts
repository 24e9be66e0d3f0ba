/** Runs the protocol of a session or a listener over connections, with one timer. */

import type { Failure } from "../errors.js";
import type { Effect } from "../protocol/effects.js";
import { type Ending, lost } from "../protocol/endings.js";
import { dial, Socket, type WebSocketConstructor, type WebSocketLike } from "./socket.js";
import type { TokenSource } from "./tokens.js";

/** Frames wait in the SDK, not in the socket, while this much is in the socket. */
const SOCKET_BYTES = 256 * 1024;
/** How often to look whether the socket has room: it does not say so by itself. */
const ROOM_MS = 20;
/** How long a connection may take to be flushed and ended by the gateway. */
const FLUSH_MS = 1000;
/** The longest wait that setTimeout takes; longer ones would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** A protocol with events `E` for the app. It writes frames `F`. */
export interface Protocol<E, F> {
  readonly state: { over: boolean };
  /** Whether the gateway has answered the first message of the current connection. */
  readonly opened: boolean;
  nextDeadline(): number | null;
  ending(now: number, code: number, said: string): Ending;
  onConnecting(now: number): number;
  onConnected(now: number): void;
  onText(now: number, frame: string): Effect<E>[];
  onBinary(frame: ArrayBuffer): Effect<E>[];
  onTimer(now: number): Effect<E>[];
  onDisconnected(now: number, ending: Ending): Effect<E>[];
  take(): F | null;
}

export interface LinkOptions<E, F> {
  readonly protocol: Protocol<E, F>;
  /** Returns a frame as it is written. */
  readonly encode: (frame: F) => string | Uint8Array<ArrayBuffer>;
  /** Equivalent gateways. */
  readonly addresses: readonly string[];
  readonly token: TokenSource;
  readonly webSocket: WebSocketConstructor;
  /** Called with each event for the app. */
  readonly give: (event: E) => void;
  /** Called when all is done, after the last event. */
  readonly over: () => void;
}

/** Carries a session or a listener from its first connection to its last. */
export class Link<E, F> {
  #options: LinkOptions<E, F>;
  #protocol: Protocol<E, F>;
  #at: number;
  #socket: Socket | null = null;
  /** Ends the current connection for the loop. */
  #leave: (ending: Ending) => void = () => undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #roomTimer: ReturnType<typeof setTimeout> | undefined;
  #flushTimer: ReturnType<typeof setTimeout> | undefined;
  #retryAfterMs = 0;
  #error: Failure | null = null;
  #aborter = new AbortController();
  #waiters = new Set<() => void>();

  constructor(options: LinkOptions<E, F>) {
    this.#options = options;
    this.#protocol = options.protocol;
    // Not all clients go to the first gateway.
    this.#at = Math.floor(Math.random() * options.addresses.length);
  }

  /** Returns when all is done. Throws a Failure if it cannot continue. */
  async run(): Promise<void> {
    const { addresses } = this.#options;
    while (!this.#aborter.signal.aborted) {
      const address = addresses[this.#at % addresses.length] ?? "";
      const ending = await this.#connection(address);
      this.#do(this.#protocol.onDisconnected(now(), ending));
      this.#changed();
      this.#checkError();
      if (this.#protocol.state.over) {
        return;
      }
      this.#at += 1;
      await this.#sleep(this.#retryAfterMs);
    }
    this.#checkError();
  }

  #checkError(): void {
    const { failure } = this.#options.token;
    if (this.#error !== null) {
      if (failure !== undefined) {
        this.#error.cause ??= failure;
      }
      throw this.#error;
    }
  }

  /** There may be something to write. */
  wake(): void {
    this.#pump();
    this.#arm();
    this.#changed();
  }

  /** Returns when the condition holds. It is checked after every change. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      await new Promise<void>((resolve) => this.#waiters.add(resolve));
    }
  }

  /** Ends everything, with this error if there is one, whatever it is doing. */
  abort(error: Failure | null = null): void {
    this.#error ??= error;
    this.#protocol.state.over = true;
    this.#aborter.abort();
    this.#leave({ kind: "left" });
  }

  // ---- one connection ----

  async #connection(address: string): Promise<Ending> {
    const { token, webSocket } = this.#options;
    const answerBy = this.#protocol.onConnecting(now());
    const failure = await token.ask(answerBy - now());
    if (failure !== null) {
      return failure;
    }
    const dialled = await dial({
      address,
      token: token.current,
      withinMs: answerBy - now(),
      constructor: webSocket,
      signal: this.#aborter.signal,
    });
    if ("kind" in dialled) {
      return token.judge(dialled, false);
    }
    this.#protocol.onConnected(now());
    const ending = await this.#converse(dialled);
    return token.judge(ending, this.#protocol.opened);
  }

  async #converse(webSocket: WebSocketLike): Promise<Ending> {
    let leave: (ending: Ending) => void = () => undefined;
    const ended = new Promise<Ending>((resolve) => {
      leave = resolve;
    });
    this.#leave = leave;
    const socket = new Socket(webSocket, {
      onText: (frame) => {
        this.#do(this.#protocol.onText(now(), frame));
        this.wake();
      },
      onBinary: (frame) => {
        this.#do(this.#protocol.onBinary(frame));
        this.wake();
      },
      onClosed: (code, reason) => {
        leave(this.#protocol.ending(now(), code, reason));
      },
    });
    this.#socket = socket;
    if (this.#aborter.signal.aborted) {
      leave({ kind: "left" });
    }
    this.wake();
    const ending = await ended;
    this.#socket = null;
    clearTimeout(this.#timer);
    clearTimeout(this.#roomTimer);
    clearTimeout(this.#flushTimer);
    socket.abandon();
    return ending;
  }

  /** Writes what there is to write, as far as the socket has room. */
  #pump(): void {
    const socket = this.#socket;
    if (socket === null) {
      return;
    }
    clearTimeout(this.#roomTimer);
    try {
      while (socket.waiting < SOCKET_BYTES) {
        const next = this.#protocol.take();
        if (next === null) {
          return;
        }
        socket.send(this.#options.encode(next));
      }
    } catch (error) {
      this.#leave(lost(`writing failed: ${error instanceof Error ? error.message : ""}`));
      return;
    }
    this.#roomTimer = setTimeout(() => {
      this.#pump();
    }, ROOM_MS);
  }

  // ---- time ----

  #arm(): void {
    clearTimeout(this.#timer);
    const deadline = this.#socket === null ? null : this.#protocol.nextDeadline();
    if (deadline !== null) {
      // A timer that fires before the deadline only sets the next one.
      const wait = Math.min(MAX_TIMER_MS, Math.max(0, Math.ceil(deadline - now())));
      this.#timer = setTimeout(() => {
        this.#do(this.#protocol.onTimer(now()));
        this.wake();
      }, wait);
    }
  }

  async #sleep(ms: number): Promise<void> {
    const { signal } = this.#aborter;
    if (signal.aborted) {
      return;
    }
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      signal.addEventListener("abort", done);
    });
  }

  #changed(): void {
    const waiters = [...this.#waiters];
    this.#waiters.clear();
    for (const resolve of waiters) {
      resolve();
    }
  }

  // ---- effects ----

  /** Does what the protocol asks for after a step that the app took. */
  carryOut(effects: readonly Effect<E>[]): void {
    this.#do(effects);
    this.wake();
  }

  #do(effects: readonly Effect<E>[]): void {
    for (const effect of effects) {
      switch (effect.do) {
        case "give":
          this.#options.give(effect.event);
          break;
        case "close":
          this.#close(effect.ending, effect.graceful);
          break;
        case "retry":
          this.#retryAfterMs = effect.afterMs;
          break;
        case "over":
          this.#options.over();
          break;
        case "fail":
          this.#error ??= effect.error;
          break;
      }
    }
  }

  #close(ending: Ending, graceful: boolean): void {
    const leave = this.#leave;
    if (!graceful) {
      leave(ending);
      return;
    }
    this.#pump();
    this.#socket?.close();
    clearTimeout(this.#flushTimer);
    this.#flushTimer = setTimeout(() => {
      leave(ending);
    }, FLUSH_MS);
  }
}

function now(): number {
  return performance.now();
}
