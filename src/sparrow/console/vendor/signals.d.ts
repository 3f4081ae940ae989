export interface Signal<T> { value: T; peek(): T; subscribe(f: (value: T) => void): () => void }
export function signal<T>(value: T): Signal<T>;
export function computed<T>(compute: () => T): Signal<T>;
export function effect(run: () => void): () => void;
