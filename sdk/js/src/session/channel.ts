/** What a session and a listener have in common: connections, queues for the app, and an end. */

import type { Failure } from "../errors.js";
import { Inbox, type Sorting } from "./inbox.js";
import { Link, type Protocol } from "./link.js";
import type { WebSocketConstructor } from "./socket.js";
import type { TokenSource } from "./tokens.js";

export interface ChannelOptions<E, O extends E, F> {
  readonly protocol: Protocol<E, F> & { readonly state: { lost: LostError } };
  /** Equivalent gateways. */
  readonly addresses: readonly string[];
  readonly token: TokenSource;
  readonly webSocket: WebSocketConstructor;
  /** Returns a frame as it is written. */
  readonly encode: (frame: F) => string | Uint8Array<ArrayBuffer>;
  readonly sorting: Sorting<E, O>;
}

/** Returns the error that says what is lost if it ends now. */
type LostError = (reason: string, message: string) => Failure;

/** Events `E` for the app, of which `O` are results; frames `F` for gateways. */
export class Channel<E, O extends E, F> {
  #options: ChannelOptions<E, O, F>;
  #inbox: Inbox<E, O>;
  #link: Link<E, F>;
  #done = false;
  #failure: unknown = undefined;

  constructor(options: ChannelOptions<E, O, F>) {
    this.#options = options;
    this.#inbox = new Inbox(options.sorting);
    this.#link = new Link({
      ...options,
      give: (event) => {
        this.#give(event);
      },
      over: () => {
        this.#inbox.end();
      },
    });
  }

  /** Connects, and goes on to do so until the end. */
  start(): void {
    this.#link.run().then(
      () => {
        this.#end(undefined);
      },
      (error: unknown) => {
        this.#end(error);
      },
    );
  }

  /** Whether it has ended. */
  get done(): boolean {
    return this.#done;
  }

  /** Throws the error because of which it has ended, if there is one. */
  checkFailure(): void {
    if (this.#failure !== undefined) {
      throw this.#failure as Error;
    }
  }

  /** Returns when the condition holds, or it has ended. Throws if it was lost. */
  async until(condition: () => boolean): Promise<void> {
    await this.#link.until(() => this.#done || condition());
    this.checkFailure();
  }

  /** There may be something to write. */
  wake(): void {
    this.#link.wake();
  }

  /** Does what the protocol asks for after a step that the app took. */
  carryOut(effects: Parameters<Link<E, F>["carryOut"]>[0]): void {
    this.#link.carryOut(effects);
  }

  /** Ends connections and attempts to connect, without an error. */
  stop(): void {
    this.#link.abort();
  }

  /** Drops everything at once. */
  abort(reason: string, message: string): void {
    if (!this.#done) {
      const error = this.#options.protocol.state.lost(reason, message);
      this.#link.abort(error);
      this.#end(error);
    }
  }

  events(): AsyncIterableIterator<E, undefined> {
    this.#inbox.events.isRead = true;
    return this.#inbox.events.read();
  }

  results(): AsyncIterableIterator<O, undefined> {
    const queue = this.#inbox.results;
    if (queue.dropped > 0 && !queue.isRead) {
      throw new TypeError(
        `results() was called too late: the first ${queue.dropped} results were dropped`,
      );
    }
    queue.isRead = true;
    return queue.read();
  }

  #give(event: E): void {
    if (!this.#inbox.put(event)) {
      this.abort("UNREAD", "the app does not read its results and events");
    }
  }

  #end(error: unknown): void {
    if (!this.#done) {
      this.#done = true;
      this.#failure = error;
      this.#inbox.end(error);
      this.#link.wake();
    }
  }
}
