package monitor

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// ProcessTree returns the IDs of a process and its descendants, itself first. Children of processes that ended
// meanwhile are missing.
func ProcessTree(root int) []int {
	tree := []int{root}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return tree
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	for i := 0; i < len(tree); i++ {
		slices.Sort(children[tree[i]])
		tree = append(tree, children[tree[i]]...)
	}
	return tree
}

// parentOf reads the parent from the fourth field of /proc/PID/stat. The second field, the name in parentheses, may
// contain any character.
func parentOf(pid int) (int, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	rest := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(rest) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(rest[1]))
	return parent, err == nil
}
