package trace

// RadixStorage returns the temporary storage of a radix sort of n keys by their low bits, for tests.
func RadixStorage(b GPU, c CUB, n, key, value int64, bits int) int64 {
	return b.radixStorage(&c, radixSort{n: n, key: key, value: value, bits: bits})
}
