/** Audio whose result has not arrived yet. No I/O. */

/**
 * The limit of it. The results follow in the next text frame, and a gateway puts about 3 MiB into
 * one.
 */
export const MAX_EARLY_BYTES = 16 * 1024 * 1024;
/** What the SDK needs for each piece besides the audio. */
const OVERHEAD_BYTES = 128;

/** Audio by what it belongs to. */
export class EarlyAudio<K> {
  #pieces = new Map<K, Uint8Array>();
  #bytes = 0;

  /** Keeps audio for the result that follows. Returns whether there was room. */
  put(key: K, data: Uint8Array): boolean {
    this.take(key);
    this.#pieces.set(key, data);
    this.#bytes += OVERHEAD_BYTES + data.length;
    return this.#bytes <= MAX_EARLY_BYTES;
  }

  /** Returns the audio of a result, if there is any. */
  take(key: K): Uint8Array | undefined {
    const data = this.#pieces.get(key);
    if (data !== undefined) {
      this.#pieces.delete(key);
      this.#bytes -= OVERHEAD_BYTES + data.length;
    }
    return data;
  }
}
