package trace

import (
	"container/heap"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// byAge is the queue on top of the heap of the standard library.
type byAge []*Node

func (q byAge) Len() int           { return len(q) }
func (q byAge) Less(i, j int) bool { return q[i].seq > q[j].seq }
func (q byAge) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *byAge) Push(n any)        { *q = append(*q, n.(*Node)) }
func (q *byAge) Pop() any {
	old := *q
	n := old[len(old)-1]
	*q = old[:len(old)-1]
	return n
}

// The latest node runs first; among leaves, which have one number, the order is that of any binary heap.
func TestReadyQueueIsAHeap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var q readyQueue
		var want byAge
		for range rapid.IntRange(0, 100).Draw(rt, "operations") {
			if len(q) > 0 && rapid.Bool().Draw(rt, "pop") {
				require.Same(rt, heap.Pop(&want), q.pop())
				continue
			}
			n := &Node{seq: rapid.Int64Range(0, 9).Draw(rt, "seq")}
			q.push(n)
			heap.Push(&want, n)
		}
		for len(q) > 0 {
			require.Same(rt, heap.Pop(&want), q.pop())
		}
	})
}
