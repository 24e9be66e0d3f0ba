/**
 * Changes the sample rate of audio by a windowed-sinc filter. No I/O.
 *
 * Speech recognition wants 16 kHz, and devices record at 44.1 or 48 kHz. What is above half of the
 * new rate has to be removed first, or it comes back as noise within speech (aliasing).
 */

/** Attenuation of what cannot be represented, in decibels. */
const STOPBAND_DB = 80;
/** The end of the band that passes unchanged, as a part of half of the lower rate. */
const PASSBAND = 0.875;

/**
 * A polyphase filter for streams: blocks of any size give the same samples as one large block.
 *
 * Output sample n is the filtered input at time n * (input rate / output rate). `push` returns what
 * can be computed so far, and `flush` the rest: all in all ceil(inputs * output rate / input rate)
 * samples.
 */
export class Resampler {
  readonly #up: number;
  readonly #down: number;
  /** Samples before and after the centre of the filter. */
  readonly #half: number;
  readonly #cutoff: number;
  /** Coefficients by phase. They are computed when a phase occurs for the first time. */
  readonly #phases = new Map<number, Float64Array>();
  #history: Float32Array;
  /** The input index of the first sample in `#history`. */
  #historyAt = 0;
  #inputs = 0;
  #outputs = 0;

  constructor(inputRateHz: number, outputRateHz: number) {
    checkRate("inputRateHz", inputRateHz);
    checkRate("outputRateHz", outputRateHz);
    const divisor = greatestCommonDivisor(inputRateHz, outputRateHz);
    this.#up = outputRateHz / divisor;
    this.#down = inputRateHz / divisor;
    // Frequencies as parts of the input rate.
    const nyquist = Math.min(inputRateHz, outputRateHz) / 2 / inputRateHz;
    const transition = nyquist * (1 - PASSBAND);
    this.#cutoff = nyquist - transition / 2;
    // Kaiser's estimate of the length for this attenuation and width.
    const taps = (STOPBAND_DB - 8) / (2.285 * 2 * Math.PI * transition);
    this.#half = Math.ceil(taps / 2);
    // Silence before the beginning.
    this.#history = new Float32Array(this.#half);
    this.#historyAt = -this.#half;
  }

  /** The delay between input and output: how much later audio is needed for a sample. */
  get delaySamples(): number {
    return this.#half;
  }

  /** Returns the samples that this block completes. */
  push(block: Float32Array): Float32Array {
    if (this.#up === this.#down) {
      return block.slice();
    }
    this.#remember(block);
    this.#inputs += block.length;
    return this.#compute(this.#inputs - this.#half);
  }

  /** Ends the stream, as if silence followed. Returns the last samples. The next one starts anew. */
  flush(): Float32Array {
    if (this.#up === this.#down) {
      return new Float32Array();
    }
    this.#remember(new Float32Array(this.#half));
    const rest = this.#compute(this.#inputs);
    this.#history = new Float32Array(this.#half);
    this.#historyAt = -this.#half;
    this.#inputs = this.#outputs = 0;
    return rest;
  }

  /** Computes all outputs whose time is before this input index. */
  #compute(end: number): Float32Array {
    const until = Math.max(this.#outputs, Math.ceil((end * this.#up) / this.#down));
    const out = new Float32Array(until - this.#outputs);
    for (let at = 0; at < out.length; at += 1) {
      out[at] = this.#sample(this.#outputs + at);
    }
    this.#outputs = until;
    this.#forget();
    return out;
  }

  #sample(output: number): number {
    const position = output * this.#down;
    const centre = Math.floor(position / this.#up);
    const coefficients = this.#phase(position % this.#up);
    const first = centre - this.#half + 1 - this.#historyAt;
    const history = this.#history;
    let sum = 0;
    for (let at = 0; at < coefficients.length; at += 1) {
      sum += (coefficients[at] ?? 0) * (history[first + at] ?? 0);
    }
    return sum;
  }

  /** Returns the coefficients for outputs this many (1/up) input samples after an input. */
  #phase(phase: number): Float64Array {
    let coefficients = this.#phases.get(phase);
    if (coefficients === undefined) {
      coefficients = this.#design(phase / this.#up);
      this.#phases.set(phase, coefficients);
    }
    return coefficients;
  }

  #design(offset: number): Float64Array {
    const half = this.#half;
    const coefficients = new Float64Array(2 * half);
    let sum = 0;
    for (let at = 0; at < coefficients.length; at += 1) {
      const distance = at - (half - 1) - offset;
      const value = sinc(2 * this.#cutoff * distance) * kaiser(distance / half);
      coefficients[at] = value;
      sum += value;
    }
    // Every phase has the same gain, or a constant level would become a tone.
    return coefficients.map((value) => value / sum);
  }

  #remember(block: Float32Array): void {
    const joined = new Float32Array(this.#history.length + block.length);
    joined.set(this.#history);
    joined.set(block, this.#history.length);
    this.#history = joined;
  }

  /** Drops what no later output needs. */
  #forget(): void {
    const next = Math.floor((this.#outputs * this.#down) / this.#up) - this.#half + 1;
    const unneeded = Math.min(next - this.#historyAt, this.#history.length);
    if (unneeded > 0) {
      this.#history = this.#history.slice(unneeded);
      this.#historyAt += unneeded;
    }
  }
}

/** Returns samples from -1 to 1 as 16-bit integers; louder ones are clipped. */
export function toInt16(samples: Float32Array): Int16Array<ArrayBuffer> {
  const out = new Int16Array(samples.length);
  for (let at = 0; at < samples.length; at += 1) {
    out[at] = Math.max(-32_768, Math.min(32_767, Math.round((samples[at] ?? 0) * 32_768)));
  }
  return out;
}

/** The shape of Kaiser's window for STOPBAND_DB. */
const BETA = 0.1102 * (STOPBAND_DB - 8.7);
const BESSEL_BETA = besselI0(BETA);

function kaiser(x: number): number {
  return Math.abs(x) > 1 ? 0 : besselI0(BETA * Math.sqrt(1 - x * x)) / BESSEL_BETA;
}

function sinc(x: number): number {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

/** The modified Bessel function of the first kind of order 0, by its series. */
function besselI0(x: number): number {
  let sum = 1;
  let term = 1;
  for (let k = 1; term > sum * 1e-12; k += 1) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}

function checkRate(name: string, rate: number): void {
  if (!Number.isInteger(rate) || rate < 1000 || rate > 768_000) {
    throw new RangeError(`${name}: ${rate} must be an integer from 1000 to 768000`);
  }
}
