/**
 * Keeps audio chunks that the session may have to send again. No I/O, no clock.
 *
 * Chunks that no AudioAck covers may exist nowhere else. Acknowledged chunks are kept as long as
 * the server asks for it: a node holds them for the rest of a sentence, and a gateway that takes
 * over the session may need them.
 */

/** Who speaks: "none" if the session has one direction. */
export type Speaker = "none" | "a" | "b";

export interface AudioChunk {
  readonly seq: number;
  readonly data: Uint8Array;
  readonly isFinal: boolean;
  readonly speaker: Speaker;
  /** When its end was recorded, in milliseconds since the epoch; 0: unknown. */
  readonly clientMs: number;
}

/** The limit of acknowledged chunks: about four minutes at 16 kHz. The oldest are dropped first. */
export const MAX_HELD_BYTES = 8 * 1024 * 1024;

/** Chunks by sequence number, without gaps. */
export class KeptChunks {
  #chunks = new Map<number, AudioChunk>();
  #first = 0;
  #end = 0;
  #bytes = 0;
  #heldBytes = 0;
  /** The next to write to the current connection, and one more than the last ever written. */
  #cursor = 0;
  #written = 0;
  /** Chunks below the first are acknowledged; those below the second are not needed again. */
  #safe = 0;
  #keep = 0;

  constructor(private readonly maxHeldBytes = MAX_HELD_BYTES) {}

  /** The lowest sequence number that is kept; all below are acknowledged. */
  get first(): number {
    return this.#first;
  }

  /** The sequence number of the next new chunk. */
  get end(): number {
    return this.#end;
  }

  /** The lowest sequence number that is not acknowledged. */
  get acknowledged(): number {
    return this.#safe;
  }

  /** The number of unacknowledged chunks. */
  get unacknowledged(): number {
    return this.#end - this.#safe;
  }

  /** Bytes of unacknowledged audio. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Bytes of acknowledged audio that is still kept. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** The number of chunks written to an earlier connection, and not to the current one. */
  get toRepeat(): number {
    return this.#written - this.#cursor;
  }

  /** Appends a new chunk. */
  add(chunk: Omit<AudioChunk, "seq">): void {
    this.#chunks.set(this.#end, { ...chunk, seq: this.#end });
    this.#end += 1;
    this.#bytes += chunk.data.length;
  }

  /** Returns the next chunk to write to the current connection; null if there is none. */
  take(): AudioChunk | null {
    const chunk = this.#chunks.get(this.#cursor);
    if (chunk === undefined) {
      return null;
    }
    this.#cursor += 1;
    this.#written = Math.max(this.#written, this.#cursor);
    this.#drop();
    return chunk;
  }

  /**
   * Notes that chunks below `nextSeq` are acknowledged. Returns whether any of them is new.
   *
   * Acknowledged chunks from `keepSeq` on may be needed again; null: none of them. Chunks that were
   * never written stay unacknowledged, whatever the server says. Chunks that were not written to
   * the current connection are still written, so that it has no gap.
   */
  ack(nextSeq: number, keepSeq: number | null = null): boolean {
    const before = this.#safe;
    this.#becomeSafe(nextSeq);
    this.#keep = Math.max(this.#keep, Math.min(keepSeq ?? this.#safe, this.#safe));
    this.#drop();
    return this.#safe > before;
  }

  /**
   * Starts a new connection with this chunk: all below are acknowledged. If the server asks for
   * chunks that are no longer kept, it gets those that are.
   */
  beginAt(nextSeq: number): void {
    this.#becomeSafe(nextSeq);
    this.#keep = Math.max(this.#keep, Math.min(nextSeq, this.#written));
    this.#cursor = Math.max(this.#first, Math.min(nextSeq, this.#written));
    this.#drop();
  }

  /**
   * Writes this chunk and all after it again. If `emptied`, the chunk loses its audio and its time.
   * Does nothing, and returns false, if the chunk has yet to be written to the current connection.
   */
  againFrom(seq: number, emptied: boolean): boolean {
    const chunk = this.#chunks.get(seq);
    if (chunk === undefined || seq >= this.#cursor) {
      return false;
    }
    this.#cursor = seq;
    if (emptied) {
      this.#chunks.set(seq, { ...chunk, data: new Uint8Array(), clientMs: 0 });
      if (seq < this.#safe) {
        this.#heldBytes -= chunk.data.length;
      } else {
        this.#bytes -= chunk.data.length;
      }
    }
    return true;
  }

  /** Drops all chunks. */
  forget(): void {
    this.#chunks.clear();
    this.#first = this.#cursor = this.#written = this.#safe = this.#keep = this.#end;
    this.#bytes = this.#heldBytes = 0;
  }

  #becomeSafe(nextSeq: number): void {
    const safe = Math.max(this.#safe, Math.min(nextSeq, this.#written));
    for (let seq = this.#safe; seq < safe; seq += 1) {
      const size = this.#chunks.get(seq)?.data.length ?? 0;
      this.#bytes -= size;
      this.#heldBytes += size;
    }
    this.#safe = safe;
  }

  #drop(): void {
    const end = Math.min(this.#safe, this.#cursor);
    while (this.#first < end && (this.#first < this.#keep || this.#heldBytes > this.maxHeldBytes)) {
      this.#heldBytes -= this.#chunks.get(this.#first)?.data.length ?? 0;
      this.#chunks.delete(this.#first);
      this.#first += 1;
    }
  }
}
