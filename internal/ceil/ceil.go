// Package ceil rounds whole numbers up: sizes to units, counts to blocks.
package ceil

// Div is n divided by d, rounded up. Neither may be negative, nor d zero.
func Div(n, d int64) int64 { return (n + d - 1) / d }

// Multiple is the smallest multiple of unit that is not below n. Neither may be
// negative, nor unit zero.
func Multiple(n, unit int64) int64 {
	if rest := n % unit; rest != 0 {
		n += unit - rest
	}
	return n
}
