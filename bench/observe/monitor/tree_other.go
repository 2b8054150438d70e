//go:build !linux

package monitor

// Tree returns the process alone: only Linux tells who its descendants are.
func Tree(root int) []int { return []int{root} }
