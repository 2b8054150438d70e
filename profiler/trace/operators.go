package trace

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// operatorText has the rows of all pointwise operators; it begins with a description of the format.
//
//go:embed operators.txt
var operatorText string

// backwardKernel is a backward kernel with the gradient and a saved tensor as arguments.
type backwardKernel struct {
	flops int64
	// savedFirst reports whether the saved tensor is the first argument, so that the result has its layout.
	savedFirst bool
}

var pointwiseOperators, backwardKernels = readOperators(operatorText)

// readOperators reads the rows of operators and backward kernels. It panics on an error, which every test finds.
func readOperators(text string) (rows []*Operator, kernels map[string]backwardKernel) {
	kernels = map[string]backwardKernel{}
	var o *Operator
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), ": "); {
		case line == "" || line[0] == '#':
		case line[0] != ' ':
			schema, rest, _ := strings.Cut(line, " | ")
			flops, traits, _ := strings.Cut(rest, " | ")
			n, err := strconv.ParseInt(flops, 10, 64)
			if err != nil {
				panic(fmt.Sprintf("trace: operator %q: %v", line, err))
			}
			if strings.HasPrefix(traits, "backward") {
				kernels[schema] = backwardKernel{flops: n, savedFirst: traits != "backward"}
				continue
			}
			if !strings.Contains(schema, "(") {
				schema += "(Tensor self) -> Tensor"
			}
			o = &Operator{Schema: schema, flops: n}
			o.setTraits(traits)
			rows = append(rows, o)
		case key == "alias":
			o.Aliases = append(o.Aliases, value)
		case key == "node":
			o.node = value
		case key == "recorded":
			o.native = value
		case o.gradients == nil:
			o.gradients = formulas{key: value}
		default:
			o.gradients[key] = value
		}
	}
	return rows, kernels
}

func (o *Operator) setTraits(traits string) {
	for trait := range strings.FieldsSeq(traits) {
		switch trait {
		case "in-place":
			o.InPlace = true
		case "fp32":
			o.casts = castFull
		case "widest":
			o.casts = castWidest
		case "keeps-type":
			o.result = promoted
		case "type-of-self":
			o.result = selfTyped
		case "real":
			o.result = absolute
		default:
			panic(fmt.Sprintf("trace: operator %s has unknown trait %q", o.Schema, trait))
		}
	}
}

// PointwiseOperators returns the operators that are table rows. The caller must not change the slice.
func PointwiseOperators() []*Operator { return pointwiseOperators }

// operatorIndex maps names with overload to rows, and names without overload to their first row.
var operatorIndex = func() map[string]*Operator {
	all := make(map[string]*Operator, 256)
	for _, o := range pointwiseOperators {
		full := o.Name()
		all[full] = o
		base, _, overloaded := strings.Cut(full, ".")
		if overloaded && all[base] == nil {
			all[base] = o
		}
	}
	return all
}()

func callBackwardKernel(op string, grad, saved *Tensor) *Tensor {
	t, k := grad.tape, backwardKernels[op]
	c := t.Begin(op, grad, saved)
	if k.savedFirst {
		return c.End(t.Map(op, grad.dtype, k.flops, saved, grad))
	}
	return c.End(t.Map(op, grad.dtype, k.flops, grad, saved))
}
