/** Audio contexts as browsers have them, in the states that a headless browser never has. */

import type { TestContext } from "node:test";

/** A context that runs only if the test lets it, and sounds that end only if the test says so. */
export class FakeContext extends EventTarget {
  state: AudioContextState | "interrupted" = "running";
  readonly sampleRate = 48_000;
  readonly destination = {};
  /** What `resume` does: starts the context, does nothing for ever, or fails. */
  onResume: "start" | "hang" | "fail" = "start";
  resumes = 0;
  readonly sources: FakeSource[] = [];
  readonly audioWorklet = { addModule: (): Promise<void> => Promise.resolve() };

  become(state: FakeContext["state"]): void {
    this.state = state;
    this.dispatchEvent(new Event("statechange"));
  }

  resume(): Promise<void> {
    this.resumes += 1;
    if (this.onResume === "fail") {
      return Promise.reject(new Error("InvalidStateError"));
    }
    if (this.onResume === "start") {
      this.state = "running";
      return Promise.resolve();
    }
    return new Promise(() => undefined);
  }

  close(): Promise<void> {
    this.become("closed");
    return Promise.resolve();
  }

  createBuffer(): object {
    return { copyToChannel: (): void => undefined };
  }

  createBufferSource(): FakeSource {
    const source = new FakeSource(this);
    this.sources.push(source);
    return source;
  }

  createMediaStreamSource(): object {
    return { connect: (): void => undefined, disconnect: (): void => undefined };
  }

  /** Itself, for the SDK. */
  get context(): AudioContext {
    return this as unknown as AudioContext;
  }
}

export class FakeSource {
  buffer: object | null = null;
  onended: (() => void) | null = null;
  isStarted = false;
  readonly #context: FakeContext;

  constructor(context: FakeContext) {
    this.#context = context;
  }

  connect(): void {
    // There is no loudspeaker.
  }

  disconnect(): void {
    // There is no loudspeaker.
  }

  start(): void {
    this.isStarted = true;
  }

  /** Only a context that runs says that a sound has ended. */
  stop(): void {
    if (this.#context.state === "running") {
      queueMicrotask(() => this.onended?.());
    }
  }
}

/** A microphone whose tracks say whether they were stopped. */
export class FakeMicrophone {
  stopped = 0;
  refusal: Error | null = null;

  getUserMedia(): Promise<object> {
    if (this.refusal !== null) {
      return Promise.reject(this.refusal);
    }
    const track = {
      onended: null,
      stop: (): void => {
        this.stopped += 1;
      },
    };
    return Promise.resolve({ getTracks: () => [track], getAudioTracks: () => [track] });
  }
}

/** Makes this runtime look like a browser until the end of the test. */
export function fakeBrowser(test: TestContext, context: FakeContext): FakeMicrophone {
  const microphone = new FakeMicrophone();
  const globals: Record<string, unknown> = {
    isSecureContext: true,
    navigator: { mediaDevices: microphone },
    AudioContext: function AudioContext() {
      return context;
    },
    AudioWorkletNode: class {
      readonly port = { onmessage: null, postMessage: (): void => undefined };
    },
  };
  for (const [name, value] of Object.entries(globals)) {
    const before = Object.getOwnPropertyDescriptor(globalThis, name);
    Object.defineProperty(globalThis, name, { value, configurable: true });
    test.after(() => {
      Reflect.deleteProperty(globalThis, name);
      if (before !== undefined) {
        Object.defineProperty(globalThis, name, before);
      }
    });
  }
  return microphone;
}
