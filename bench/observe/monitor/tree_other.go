//go:build !linux

package monitor

// ProcessTree returns the process alone: only Linux lists its descendants.
func ProcessTree(root int) []int { return []int{root} }
