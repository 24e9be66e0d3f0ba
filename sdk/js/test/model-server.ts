/** A model of all gateways and what they share. It forgets nothing that it has acknowledged. */

import assert from "node:assert/strict";

import type { AudioChunk } from "../src/protocol/kept-chunks.js";
import type { ClientMessage, Outgoing, ResumeSession } from "../src/protocol/stream.js";
import { ack, closed, failed, finalized, missing, opened, result } from "./events.js";

export class ModelServer {
  /** Chunks that have come, each once, in order. */
  readonly chunks: string[] = [];
  /** The highest ack that was ever said. */
  acked = 0;
  /** Events on their way to the client. */
  said: object[] = [];
  utterances = 0;
  outcomes = 0;
  confirmed = 0;
  wasClosed = false;
  isOpen = false;
  #gone = false;
  #cutAt = 0;
  #expected = 0;
  #closing = false;
  #closedSaid = false;
  #delivered = 0;
  #told = 0;

  disconnect(): void {
    this.said = [];
    this.isOpen = this.#closing = this.#closedSaid = false;
    this.#expected = this.#delivered = this.#told = 0;
  }

  hear(frame: Outgoing): void {
    if (frame.kind === "audio") {
      this.#take(frame.chunk);
    } else {
      this.#hearMessage(frame.message);
    }
    this.#checkDone();
  }

  #hearMessage(message: ClientMessage): void {
    this.#confirm(message.resultsSeen ?? 0);
    if (message.open !== undefined) {
      assert(!this.isOpen, "Open comes first and once");
      this.#open("resume" in message.open ? message.open.resume : null);
    } else if (message.close !== undefined) {
      assert(this.isOpen);
      assert.equal(this.#expected, this.chunks.length, "Close comes after the last chunk");
      this.#closing = this.wasClosed = true;
      this.#cut();
    }
  }

  #open(resume: ResumeSession | null): void {
    if (this.#gone) {
      this.said.push(failed("SESSION_NOT_FOUND"));
      return;
    }
    if (resume === null) {
      assert.equal(this.chunks.length, 0);
    } else {
      assert.deepEqual([resume.sessionId, resume.resumeToken], ["s-1", "secret"]);
      assert(resume.nextSeq <= this.acked, "it forgot what was not acknowledged");
      assert(resume.resultsSeen <= this.outcomes);
      this.#confirm(resume.resultsSeen);
      // The server may or may not remember acks that the client never received.
      this.#expected = Math.max(resume.nextSeq, this.acked % 2 === 1 ? this.acked : 0);
      this.#delivered = this.#told = resume.resultsSeen;
    }
    this.isOpen = true;
    this.said.push(opened(this.#expected));
  }

  #take(chunk: AudioChunk): void {
    assert(this.isOpen, "audio came before Opened");
    assert(chunk.seq <= this.#expected, "a gap");
    if (chunk.seq < this.#expected) {
      return;
    }
    this.#expected += 1;
    const data = new TextDecoder().decode(chunk.data);
    if (chunk.seq === this.chunks.length) {
      this.chunks.push(data);
      if (chunk.isFinal) {
        this.#cut();
      }
    } else {
      assert.equal(this.chunks[chunk.seq], data, "a chunk changed");
    }
  }

  #confirm(seen: number): void {
    assert(seen <= this.outcomes, "it confirmed what it cannot have seen");
    this.confirmed = Math.max(this.confirmed, seen);
  }

  #cut(): void {
    if (this.#cutAt < this.chunks.length) {
      this.#cutAt = this.chunks.length;
      this.utterances += 1;
    }
  }

  acknowledge(more: number): void {
    if (this.isOpen) {
      while (this.#told < this.utterances) {
        this.said.push(finalized(this.#told));
        this.#told += 1;
      }
      this.acked = Math.max(this.acked, Math.min(this.#expected, this.#cutAt, this.acked + more));
      this.said.push(ack(this.acked));
    }
  }

  finishJobs(more: number): void {
    this.outcomes = Math.min(this.utterances, this.outcomes + more);
    this.deliver();
  }

  deliver(): void {
    while (this.isOpen && this.#delivered < this.outcomes) {
      this.said.push(outcome(this.#delivered));
      this.#delivered += 1;
    }
    this.#checkDone();
  }

  /** Sends some results again, as a resume does that knows less than the client. */
  repeat(count: number): void {
    for (
      let at = Math.max(0, this.#delivered - count);
      this.isOpen && at < this.#delivered;
      at += 1
    ) {
      this.said.push(outcome(at));
    }
  }

  #checkDone(): void {
    const isAll = this.outcomes === this.utterances && this.outcomes === this.#delivered;
    if (this.#closing && isAll && !this.#closedSaid) {
      this.#closedSaid = true;
      this.said.push(closed(this.outcomes));
    }
    if (this.#closedSaid && this.confirmed === this.outcomes) {
      this.#gone = true;
    }
  }
}

function outcome(index: number): object {
  return index % 3 === 2 ? missing(index) : result(index);
}
