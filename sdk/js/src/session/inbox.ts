/** Queues what the app has yet to read: one queue for `events()`, and one for `results()`. */

import type { Outcome, SessionEvent } from "../events.js";

/** A queue that is not read, while the other one is, keeps only this much. */
export const UNREAD_EVENTS = 256;
export const UNREAD_BYTES = 8 * 1024 * 1024;
/** The most that any queue keeps. */
export const MAX_EVENTS = 10_000;
export const MAX_BYTES = 64 * 1024 * 1024;

/**
 * Events in order, for one reader. If several readers share it, each event goes to one of them. A
 * waiting partial text is replaced by a newer one of its utterance.
 */
export class EventQueue<E extends SessionEvent> {
  /** Whether the app has asked for this queue. */
  isRead = false;
  /** How many events were dropped because it had not. */
  dropped = 0;
  /** By their order of arrival. */
  #waiting = new Map<number, E>();
  #partials = new Map<number, number>();
  #arrived = 0;
  #bytes = 0;
  #wake: (() => void)[] = [];
  #ended = false;
  #error: unknown = undefined;

  put(event: E): void {
    if (event.type === "partial") {
      const place = this.#partials.get(event.index);
      if (place !== undefined) {
        this.#waiting.set(place, event);
        return;
      }
      this.#partials.set(event.index, this.#arrived);
    }
    this.#waiting.set(this.#arrived, event);
    this.#arrived += 1;
    this.#bytes += sizeOf(event);
    this.#wakeReaders();
  }

  /** Ends the queue. Readers get the error, if any, after the last event. */
  end(error: unknown): void {
    if (!this.#ended) {
      this.#ended = true;
      this.#error = error;
      this.#wakeReaders();
    }
  }

  exceeds(events: number, bytes: number): boolean {
    return this.#waiting.size > events || this.#bytes > bytes;
  }

  /** Drops the oldest events beyond the limits. */
  trim(events: number, bytes: number): void {
    while (this.exceeds(events, bytes)) {
      this.#pop();
      this.dropped += 1;
    }
  }

  /** Yields events until the end. */
  read(): AsyncIterableIterator<E, undefined> {
    const next = async (): Promise<IteratorResult<E, undefined>> => {
      for (;;) {
        const event = this.#pop();
        if (event !== undefined) {
          return { done: false, value: event };
        }
        if (this.#ended) {
          if (this.#error !== undefined) {
            throw this.#error as Error;
          }
          return { done: true, value: undefined };
        }
        await new Promise<void>((resolve) => this.#wake.push(resolve));
      }
    };
    const iterator: AsyncIterableIterator<E, undefined> = {
      next,
      [Symbol.asyncIterator]: () => iterator,
    };
    return iterator;
  }

  #pop(): E | undefined {
    const [oldest] = this.#waiting;
    if (oldest === undefined) {
      return undefined;
    }
    const [place, event] = oldest;
    this.#waiting.delete(place);
    this.#bytes -= sizeOf(event);
    if (event.type === "partial") {
      this.#partials.delete(event.index);
    }
    return event;
  }

  #wakeReaders(): void {
    const waiting = this.#wake;
    this.#wake = [];
    for (const resolve of waiting) {
      resolve();
    }
  }
}

/**
 * Both queues.
 *
 * A queue that the app has asked for keeps every event until it is read, and is full at a generous
 * limit. One that it has not asked for drops its oldest events at a limit, which is small if the
 * app reads the other one.
 */
export class Inbox {
  readonly events = new EventQueue<SessionEvent>();
  readonly results = new EventQueue<Outcome>();

  /** Adds an event to the queues that have it. Returns whether there was room. */
  put(event: SessionEvent): boolean {
    this.events.put(event);
    if (event.type === "result" || event.type === "missing") {
      this.results.put(event);
    }
    limit(this.events, this.results.isRead);
    limit(this.results, this.events.isRead);
    return (
      !this.events.exceeds(MAX_EVENTS, MAX_BYTES) && !this.results.exceeds(MAX_EVENTS, MAX_BYTES)
    );
  }

  end(error?: unknown): void {
    this.events.end(error);
    this.results.end(error);
  }
}

function limit<E extends SessionEvent>(queue: EventQueue<E>, otherIsRead: boolean): void {
  if (!queue.isRead) {
    queue.trim(otherIsRead ? UNREAD_EVENTS : MAX_EVENTS, otherIsRead ? UNREAD_BYTES : MAX_BYTES);
  }
}

function sizeOf(event: SessionEvent): number {
  return event.type === "result" ? event.speech.length : 0;
}
