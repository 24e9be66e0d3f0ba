/** Queues what the app has yet to read: one queue for `events()`, and one for `results()`. */

/** A queue that is not read, while the other one is, keeps only this much. */
export const UNREAD_EVENTS = 256;
export const UNREAD_BYTES = 8 * 1024 * 1024;
/** The most that any queue keeps. */
export const MAX_EVENTS = 10_000;
export const MAX_BYTES = 64 * 1024 * 1024;

/** What the queues have to know about events. */
export interface Sorting<E, O extends E> {
  /** Whether an event also goes to `results()`. */
  isOutcome(event: E): event is O;
  /** How many bytes of audio it holds. */
  bytesOf(event: E): number;
  /** Events with the same key replace each other as long as they are unread; null: never. */
  keyOf(event: E): number | null;
}

/**
 * Events in order, for one reader. If several readers share it, each event goes to one of them. A
 * waiting event is replaced by a newer one with the same key, such as a partial text.
 */
export class EventQueue<E> {
  /** Whether the app has asked for this queue. */
  isRead = false;
  /** How many events were dropped because it had not. */
  dropped = 0;
  /** By their order of arrival. */
  #waiting = new Map<number, E>();
  /** The places of those that can be replaced, by key. */
  #places = new Map<number, number>();
  #arrived = 0;
  #bytes = 0;
  #wake: (() => void)[] = [];
  #ended = false;
  #error: unknown = undefined;

  constructor(private readonly sorting: Pick<Sorting<E, E>, "bytesOf" | "keyOf">) {}

  put(event: E): void {
    const key = this.sorting.keyOf(event);
    if (key !== null) {
      const place = this.#places.get(key);
      if (place !== undefined) {
        this.#waiting.set(place, event);
        return;
      }
      this.#places.set(key, this.#arrived);
    }
    this.#waiting.set(this.#arrived, event);
    this.#arrived += 1;
    this.#bytes += this.sorting.bytesOf(event);
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
    this.#bytes -= this.sorting.bytesOf(event);
    const key = this.sorting.keyOf(event);
    if (key !== null) {
      this.#places.delete(key);
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
export class Inbox<E, O extends E> {
  readonly events: EventQueue<E>;
  readonly results: EventQueue<O>;

  constructor(private readonly sorting: Sorting<E, O>) {
    this.events = new EventQueue<E>(sorting);
    this.results = new EventQueue<O>(sorting);
  }

  /** Adds an event to the queues that have it. Returns whether there was room. */
  put(event: E): boolean {
    this.events.put(event);
    if (this.sorting.isOutcome(event)) {
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

function limit<E>(queue: EventQueue<E>, otherIsRead: boolean): void {
  if (!queue.isRead) {
    queue.trim(otherIsRead ? UNREAD_EVENTS : MAX_EVENTS, otherIsRead ? UNREAD_BYTES : MAX_BYTES);
  }
}
