//go:build !linux

package monitor

// Tree returns the process alone: only Linux lists its descendants.
func Tree(root int) []int { return []int{root} }
