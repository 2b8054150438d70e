//go:build !linux

package monitor

// ProcessTree returns only the process itself, since this operating system does not list descendants.
func ProcessTree(root int) []int { return []int{root} }
