package ops

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
)

// Einsum records torch.einsum with an equation such as "bhid,bhjd->bhij" or "...d,d->...". It contracts the operands
// from left to right, each pair by one batched matrix product. If a letter occurs twice in an operand, the diagonal is
// used.
func Einsum(equation string, operands ...*tensor) *tensor {
	return EinsumAlong(nil, equation, operands...)
}

// EinsumAlong records Einsum in the order of path, as opt_einsum returns it. Each step has two indices among the
// remaining operands; their product is appended to the operands. It panics if the path does not match the operands.
func EinsumAlong(path []int64, equation string, operands ...*tensor) *tensor {
	t := operands[0].Tape()
	c := t.BeginList("einsum", operands)
	cast := lists.Map(operands, t.CastToLower)
	c.BelowAutocast()
	e := parseEinsum(equation, cast)
	e.path = path
	return c.End(einsum(e, cast))
}

// contraction is a parsed equation. Its labels are the output's letters, then the summed letters in alphabetical order.
type contraction struct {
	inputs []string
	labels string
	kept   int     // how many of labels are in the output
	path   []int64 // of opt_einsum, see EinsumAlong; nil: from left to right
}

// spellOut replaces an ellipsis by a letter for each of its dimensions, aligned at the last dimension in all operands.
// In an equation without an arrow, they come first in the output.
func spellOut(equation string, operands []*tensor) string {
	const ellipsis, letters = "...", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	left, right, explicit := strings.Cut(equation, "->")
	if !strings.Contains(equation, ellipsis) {
		return equation
	}
	unused := strings.Map(func(r rune) rune {
		if strings.ContainsRune(equation, r) {
			return -1
		}
		return r
	}, letters)
	inputs, most := strings.Split(left, ","), 0
	stood := func(i int) int { return len(operands[i].Shape()) - len(inputs[i]) + len(ellipsis) }
	for i, in := range inputs {
		if i < len(operands) && strings.Contains(in, ellipsis) {
			most = max(most, stood(i))
		}
	}
	for i, in := range inputs {
		if i < len(operands) && strings.Contains(in, ellipsis) && most <= len(unused) && stood(i) >= 0 {
			inputs[i] = strings.Replace(in, ellipsis, unused[most-stood(i):most], 1)
		}
	}
	all := strings.Join(inputs, ",")
	if !explicit {
		once := []byte{}
		for _, l := range []byte(strings.ReplaceAll(strings.ReplaceAll(left, ",", ""), ".", "")) {
			if strings.Count(left, string(l)) == 1 {
				once = append(once, l)
			}
		}
		slices.Sort(once)
		right = ellipsis + string(once)
	}
	return all + "->" + strings.Replace(right, ellipsis, unused[:min(most, len(unused))], 1)
}

func parseEinsum(equation string, operands []*tensor) contraction {
	left, right, explicit := strings.Cut(spellOut(strings.ReplaceAll(equation, " ", ""), operands), "->")
	e := contraction{inputs: strings.Split(left, ",")}
	if len(e.inputs) != len(operands) {
		panic(fmt.Sprintf("trace: einsum %q has %d operands, got %d", equation, len(e.inputs), len(operands)))
	}
	letters := []byte(strings.ReplaceAll(left, ",", ""))
	slices.Sort(letters)
	if !explicit { // letters that occur once, in order
		for _, l := range letters {
			if strings.Count(left, string(l)) == 1 {
				right += string(l)
			}
		}
	}
	e.labels, e.kept = right, len(right)
	for _, l := range slices.Compact(letters) {
		if strings.IndexByte(e.labels, l) < 0 {
			e.labels += string(l)
		}
	}
	for i, in := range e.inputs {
		if len(in) != len(operands[i].Shape()) {
			panic(fmt.Sprintf("trace: einsum %q: operand %d has %d dimensions", equation, i, len(operands[i].Shape())))
		}
	}
	return e
}

// align permutes and expands x to one dimension for each label, in the order of the labels.
func (e *contraction) align(x *tensor, in string) *tensor {
	c := x.Tape().Begin("einsum", x)
	x = c.Bind(x)
	for i := 0; i < len(in); i++ {
		for k := i + 1; k < len(in); k++ {
			if in[i] != in[k] {
				continue
			}
			c.Set(&x, x.Diagonal(0, i, k).MoveDim(-1, i))
			in = in[:k] + in[k+1:]
			k--
		}
	}
	perm := make([]int, len(e.labels))
	next := len(in)
	for i := range perm {
		if perm[i] = strings.IndexByte(in, e.labels[i]); perm[i] < 0 {
			c.Set(&x, x.Unsqueeze(-1))
			perm[i] = next
			next++
		}
	}
	return c.End(c.Set(&x, x.Permute(perm...)))
}

func einsum(e contraction, operands []*tensor) *tensor {
	c := operands[0].Tape().BeginList("einsum", operands)
	ops := make([]*tensor, len(operands))
	for i, x := range operands {
		ops[i] = c.Bind(e.align(x, e.inputs[i]))
	}
	uses := e.operandCounts(ops)
	for step := 0; len(ops) > 1; step++ {
		i, j := e.nextPair(step, len(ops))
		a, b := ops[i], ops[j]
		ops = slices.Delete(slices.Delete(ops, j, j+1), i, i+1)
		both, onlyA, onlyB := e.summableLabels(uses, a, b)
		if len(onlyA) > 0 {
			c.Set(&a, a.Sum(true, onlyA...))
		}
		if len(onlyB) > 0 {
			c.Set(&b, b.Sum(true, onlyB...))
		}
		y := c.Bind(contract(a, b, both))
		c.Drop(b)
		c.Drop(a)
		if e.path == nil {
			ops = slices.Insert(ops, 0, y)
		} else {
			ops = append(ops, y)
		}
	}
	y := ops[0]
	if e.kept == len(e.labels) {
		return c.End(y)
	}
	if len(operands) > 1 { // the summed dimensions have size one by now
		return c.End(y.View(y.Shape()[:e.kept]...))
	}
	var dims []int
	for d := e.kept; d < len(e.labels); d++ {
		dims = append(dims, d)
	}
	return c.End(y.Sum(false, dims...))
}

// nextPair returns the indices of the two operands that a step contracts, the smaller one first. n operands are left.
func (e *contraction) nextPair(step, n int) (i, j int) {
	if e.path == nil {
		return 0, 1
	}
	if 2*step+1 >= len(e.path) {
		panic(fmt.Sprintf("trace: einsum: the path %d leaves %d operands", e.path, n))
	}
	i, j = int(min(e.path[2*step], e.path[2*step+1])), int(max(e.path[2*step], e.path[2*step+1]))
	if i < 0 || i == j || j >= n {
		panic(fmt.Sprintf("trace: einsum: the path %d has a pair that is not among %d operands", e.path, n))
	}
	return i, j
}

// operandCounts returns for each label the number of operands in which its dimension has more than one element.
func (e *contraction) operandCounts(ops []*tensor) []int {
	uses := make([]int, len(e.labels))
	for d := range uses {
		for _, x := range ops {
			if x.Shape()[d] != 1 {
				uses[d]++
			}
		}
	}
	return uses
}

// summableLabels returns the labels that can be summed when a and b are contracted, because they occur in no other
// operand: labels of both, only of a, and only of b.
func (e *contraction) summableLabels(uses []int, a, b *tensor) (both, onlyA, onlyB []int) {
	for d := e.kept; d < len(e.labels); d++ {
		inA, inB := a.Shape()[d] != 1, b.Shape()[d] != 1
		if inA && inB {
			uses[d]--
		}
		if uses[d] != 1 {
			continue
		}
		switch {
		case inA && inB:
			both = append(both, d)
		case inA:
			onlyA = append(onlyA, d)
		case inB:
			onlyB = append(onlyB, d)
		default:
			continue
		}
		uses[d] = 0
	}
	return both, onlyA, onlyB
}

// contract records sumproduct_pair: the product of a and b, whose dimensions correspond, summed over the dimensions
// sum. Summed dimensions stay with size one.
func contract(a *tensor, b *tensor, sum []int) *tensor {
	if len(sum) == 0 {
		return a.Mul(b)
	}
	c := a.Tape().Begin("einsum", a, b)
	left, right := c.Bind(a), c.Bind(b)
	var shared, lo, ro []int
	batch, rows, inner, cols := int64(1), int64(1), int64(1), int64(1)
	for d := range a.Shape() {
		inL, inR := left.Shape()[d] != 1, right.Shape()[d] != 1
		switch {
		case slices.Contains(sum, d):
			switch {
			case inL && inR:
				inner *= left.Shape()[d]
			case inL:
				c.Set(&left, left.Sum(true, d))
			case inR:
				c.Set(&right, right.Sum(true, d))
			}
		case inL && inR:
			shared = append(shared, d)
			batch *= left.Shape()[d]
		case inL:
			lo = append(lo, d)
			rows *= left.Shape()[d]
		default:
			ro = append(ro, d)
			cols *= right.Shape()[d]
		}
	}
	if len(lo) > 0 && len(ro) > 0 && ro[len(ro)-1] < lo[0] { // the product is then laid out as the output
		left, right, lo, ro, rows, cols = right, left, ro, lo, cols, rows
	}
	shape := lists.Map(slices.Concat(shared, lo), func(d int) int64 { return left.Shape()[d] })
	shape = slices.Concat(shape, slices.Repeat([]int64{1}, len(sum)),
		lists.Map(ro, func(d int) int64 { return right.Shape()[d] }))
	back := make([]int, len(shape))
	for i, d := range slices.Concat(shared, lo, sum, ro) {
		back[d] = i
	}
	c.Set(&left, left.Permute(slices.Concat(shared, lo, sum, ro)...).AsShape([]int64{batch, rows, inner}))
	c.Set(&right, right.Permute(slices.Concat(shared, sum, ro, lo)...).AsShape([]int64{batch, inner, cols}))
	y := c.Bind(left.BMMUncast(right))
	return c.End(c.Set(&y, y.View(shape...).Permute(back...)))
}
