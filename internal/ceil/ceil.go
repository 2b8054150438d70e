// Package ceil rounds whole numbers up: sizes to units, counts to blocks.
package ceil

// Div returns n divided by d, rounded up. Neither may be negative, nor d zero.
func Div[T int | int64](n, d T) T { return (n + d - 1) / d }

// Multiple returns the smallest multiple of unit that is not below n. Neither may be negative, nor unit zero.
func Multiple[T int | int64](n, unit T) T {
	if rest := n % unit; rest != 0 {
		n += unit - rest
	}
	return n
}
