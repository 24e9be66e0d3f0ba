// @ts-check
/**
 * Follows one document of the server: a stream of events with the document, its changes, problems with
 * it, and a tick every 5 s. Connects again when the stream is lost, and rests while the page is hidden.
 */

import { Backoff } from "./backoff.js";
import { mergePatch } from "./merge-patch.js";

/** Three ticks are missing: the stream is dead, even if nobody closed it. */
const SILENT_MS = 16_000;
/** A page that is hidden for longer costs the server nothing. */
const HIDDEN_MS = 60_000;

/**
 * @typedef {"connecting" | "live" | "lost" | "paused" | "ended"} Status `ended`: the server refuses the
 *   document, and nobody tries again.
 *
 * @typedef {object} Watcher
 * @property {(document: object) => void} document a new version of the document.
 * @property {(nowMs: number) => void} tick the server's clock.
 * @property {(message: string) => void} problem why the document is not computed again; "" once it is.
 * @property {(status: Status, retryAtMs: number) => void} status `retryAtMs`: for `lost`.
 * @property {() => Promise<boolean>} check asks why the stream was lost; whether to try again.
 *
 * @typedef {object} Source the part of EventSource that is used.
 * @property {(type: string, listener: (event: any) => void) => void} addEventListener
 * @property {() => void} close
 */

export class Live {
  #url;
  #watcher;
  #open;
  /** @type {Source | null} */
  #source = null;
  #backoff = new Backoff();
  /** @type {unknown} */
  #document;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retry;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #silence;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #rest;
  #isStopped = false;

  /**
   * @param {string} url
   * @param {Watcher} watcher
   * @param {(url: string) => Source} [open] for tests.
   */
  constructor(url, watcher, open = (address) => new EventSource(address)) {
    this.#url = url;
    this.#watcher = watcher;
    this.#open = open;
    this.#connect();
  }

  /** Ends it for good. */
  stop() {
    this.#isStopped = true;
    clearTimeout(this.#rest);
    this.#close();
  }

  /** Somebody asks to try now. */
  retry() {
    if (this.#source === null && !this.#isStopped) {
      this.#backoff.reset();
      this.#connect();
    }
  }

  /** @param {boolean} hidden whether nobody sees the page. */
  visibility(hidden) {
    clearTimeout(this.#rest);
    if (this.#isStopped) {
      return;
    }
    if (hidden) {
      this.#rest = setTimeout(() => {
        this.#close();
        this.#watcher.status("paused", 0);
      }, HIDDEN_MS);
    } else {
      this.retry();
    }
  }

  #connect() {
    this.#close();
    this.#watcher.status("connecting", 0);
    const source = this.#open(this.#url);
    this.#source = source;
    this.#hear();
    /** @param {(data: any) => void} handle */
    const handled = (handle) => (/** @type {{ data: string }} */ event) => {
      if (this.#source === source) {
        this.#hear();
        handle(JSON.parse(event.data));
      }
    };
    source.addEventListener(
      "document",
      handled((data) => {
        this.#backoff.working(Date.now());
        this.#show(data);
        this.#watcher.status("live", 0);
      }),
    );
    source.addEventListener(
      "patch",
      handled((data) => this.#show(mergePatch(this.#document, data))),
    );
    source.addEventListener(
      "tick",
      handled((/** @type {{ now_ms: number }} */ data) => this.#watcher.tick(data.now_ms)),
    );
    source.addEventListener(
      "problem",
      handled((/** @type {{ message?: string }} */ data) =>
        this.#watcher.problem(data.message ?? ""),
      ),
    );
    source.addEventListener(
      "end",
      handled(() => void this.#lost()),
    );
    source.addEventListener("error", () => {
      // An EventSource would connect again by itself, without any patience.
      if (this.#source === source) {
        void this.#lost();
      }
    });
  }

  /** @param {unknown} document */
  #show(document) {
    this.#document = document;
    this.#watcher.document(/** @type {object} */ (document));
  }

  #hear() {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => void this.#lost(), SILENT_MS);
  }

  async #lost() {
    this.#close();
    const delayMs = this.#backoff.lost(Date.now(), Math.random());
    this.#watcher.status("lost", Date.now() + delayMs);
    // An EventSource does not say why it was refused.
    const again = await this.#watcher.check();
    if (this.#source !== null || this.#isStopped) {
      return;
    }
    if (!again) {
      this.#watcher.status("ended", 0);
    } else {
      clearTimeout(this.#retry);
      this.#watcher.status("lost", Date.now() + delayMs);
      this.#retry = setTimeout(() => this.#connect(), delayMs);
    }
  }

  #close() {
    clearTimeout(this.#retry);
    clearTimeout(this.#silence);
    this.#source?.close();
    this.#source = null;
  }
}
