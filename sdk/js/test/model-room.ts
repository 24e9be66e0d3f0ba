/** A model of a room and all its gateways, with one listener. It keeps only the last utterances. */

import assert from "node:assert/strict";

import type { JoinRoom, ListenerMessage } from "../src/room/protocol/stream.js";
import { failed } from "./events.js";
import { changed, joined, notSaid, said } from "./room-events.js";

const REPLAYED = 3;

interface Entry {
  readonly index: number;
  readonly previous: number | null;
}

/** Sends entries of a language, from an index on. */
interface Lane {
  readonly language: string;
  readonly from: number;
  /** Where the next language begins; null: it is the current one. */
  until: number | null;
}

export class ModelRoom {
  /** The index of the next utterance. */
  next = 0;
  /** The first index that the listener got live; null before it has joined. */
  liveFrom: number | null = null;
  /** Messages on their way to the listener. */
  said: object[] = [];
  isOpen = false;
  wasLeft = false;
  /** How many entries to forget to send. */
  skips = 0;
  /** What the room translates into for the listener, from now on. */
  #language = "";
  #lanes = new Map<string, Entry[]>();
  /** What this connection sends: old languages come to their end first. */
  #sending: Lane[] = [];
  #position = 0;

  /** @param kept how many utterances of a language are kept. */
  constructor(private readonly kept: number) {}

  disconnect(): void {
    this.said = [];
    this.isOpen = false;
    this.#sending = [];
  }

  hear(message: ListenerMessage): void {
    if ("join" in message) {
      assert(!this.isOpen, "JoinRoom comes first and once");
      this.#join(message.join);
    } else if ("change" in message) {
      assert(this.isOpen);
      this.#change(message.change.listening.language);
    } else {
      this.wasLeft = true;
    }
  }

  #join({ position, memberId, listening: { language } }: JoinRoom): void {
    this.isOpen = true;
    this.#language = language;
    assert.equal(memberId === undefined, position === undefined, "a member has a position");
    this.said.push(joined(this.next));
    if (position === undefined) {
      // Perhaps again: it does not know of memberships whose Joined has not arrived.
      this.liveFrom = this.next;
      const replayed = this.#entries(language).slice(-REPLAYED);
      this.said.push(
        ...replayed.map(({ index, previous }) => said(index, previous, { replayed: true })),
      );
    } else {
      assert(position <= this.next, "it has seen what nobody has said");
    }
    this.#position = position ?? this.next;
    this.#sending = [{ language, from: 0, until: null }];
  }

  #change(language: string): void {
    if (language === "xx") {
      this.said.push(failed("INVALID_MESSAGE"));
      return;
    }
    const last = this.#sending.at(-1);
    assert(last !== undefined);
    last.until = this.next;
    this.#sending.push({ language, from: this.next, until: null });
    this.#language = language;
    this.said.push(changed(language, this.next));
  }

  /** Somebody speaks. The listener's language is translated, and sometimes others. */
  speak(others: readonly string[]): void {
    for (const language of new Set([this.#language, ...others])) {
      const entries = this.#entries(language);
      entries.push({ index: this.next, previous: entries.at(-1)?.index ?? null });
      this.#lanes.set(language, entries.slice(-this.kept));
    }
    this.next += 1;
  }

  /** Sends at most so many utterances. */
  deliver(count: number): void {
    for (let at = 0; at < count && this.isOpen; at += 1) {
      const [lane] = this.#sending;
      if (lane === undefined) {
        return;
      }
      const start = Math.max(this.#position, lane.from);
      const entry = this.#entries(lane.language).find(({ index }) => index >= start);
      if (entry !== undefined && (lane.until === null || entry.index < lane.until)) {
        this.#send(entry, start, lane);
      } else if (lane.until !== null) {
        this.#sending.shift();
        this.#sendGap(entry?.previous ?? null, start, lane.until, lane.language);
      } else {
        return;
      }
    }
  }

  /** Says that some are no longer kept, if there were some. */
  #sendGap(previous: number | null, start: number, until: number, language: string): void {
    if (previous !== null && previous >= start) {
      this.said.push(notSaid(start, null, { untilIndex: String(until), language }));
    }
  }

  #send({ index, previous }: Entry, start: number, lane: Lane): void {
    const { language, until } = lane;
    this.#position = index + 1;
    // Only what a later one of the same language names can be missed.
    const isNamed = this.#entries(language).some((each) => each.previous === index);
    if (this.skips > 0 && isNamed && until === null) {
      this.skips -= 1;
      return;
    }
    this.#sendGap(previous, start, index, language);
    this.said.push(
      index % 5 === 4
        ? notSaid(index, previous, { language })
        : said(index, previous, { language }),
    );
  }

  /** Sends some utterances again. */
  repeat(count: number): void {
    if (this.isOpen) {
      this.#position = Math.max(this.liveFrom ?? 0, this.#position - count);
    }
  }

  #entries(language: string): Entry[] {
    const found = this.#lanes.get(language) ?? [];
    this.#lanes.set(language, found);
    return found;
  }
}
