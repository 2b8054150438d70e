// Package lists has functions that make lists from lists and maps.
package lists

import (
	"cmp"
	"maps"
	"slices"
)

// Map returns the list of f(x) for each element x, in order; it is empty, and not nil, for an empty list.
func Map[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, x := range list {
		out[i] = f(x)
	}
	return out
}

// Filter returns the elements for which keep returns true, in order; nil if there are none.
func Filter[T any](list []T, keep func(T) bool) (out []T) {
	for _, x := range list {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}

// NonZero returns the nonzero values of f(x), in order; nil if there are none.
func NonZero[T any, U comparable](list []T, f func(T) U) []U {
	var zero U
	return Filter(Map(list, f), func(y U) bool { return y != zero })
}

// Make returns the list of f(0) to f(n - 1); it is empty if n is not above zero.
func Make[N int | int64, T any](n N, f func(i N) T) []T {
	out := make([]T, max(0, n))
	for i := N(0); i < n; i++ {
		out[i] = f(i)
	}
	return out
}

// Keys returns the keys of both maps, each once, in ascending order.
func Keys[K cmp.Ordered, V any](a, b map[K]V) []K {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// ToSet returns the elements of a list as keys.
func ToSet[T comparable](list []T) map[T]bool {
	set := make(map[T]bool, len(list))
	for _, x := range list {
		set[x] = true
	}
	return set
}

// Union returns the elements of list, followed by the elements of more that are not in list.
func Union[T comparable](list []T, more ...T) []T {
	for _, x := range more {
		if !slices.Contains(list, x) {
			list = append(list, x)
		}
	}
	return list
}

// First returns the first element for which is returns true; false if there is none.
func First[T any](list []T, is func(T) bool) (first T, ok bool) {
	if at := slices.IndexFunc(list, is); at >= 0 {
		return list[at], true
	}
	return first, false
}

// Largest returns the element with the largest value above zero, the first of equal ones; false if there is none.
func Largest[T any](list []T, value func(T) int64) (most T, ok bool) {
	largest := int64(0)
	for _, x := range list {
		if v := value(x); v > largest {
			most, largest = x, v
		}
	}
	return most, largest > 0
}

// Groups returns the elements of a list grouped by a key, in the order in which the keys first appear.
func Groups[T any, K comparable](list []T, key func(T) K) (groups [][]T) {
	at := map[K]int{}
	for _, x := range list {
		k := key(x)
		i, seen := at[k]
		if !seen {
			i = len(groups)
			at[k], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], x)
	}
	return groups
}

// Replace returns a copy of a list with element i replaced by x.
func Replace[T any](list []T, i int, x T) []T {
	out := slices.Clone(list)
	out[i] = x
	return out
}

// RemoveAt returns a copy of a list without element i.
func RemoveAt[T any](list []T, i int) []T { return slices.Concat(list[:i], list[i+1:]) }

// Sum returns the sum of f(x) over the elements of a list.
func Sum[T any](list []T, f func(T) int64) (sum int64) {
	for _, x := range list {
		sum += f(x)
	}
	return sum
}

// Ascending returns the numbers below n in order.
func Ascending(n int) []int { return Make(n, func(i int) int { return i }) }
