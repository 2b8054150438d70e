package train

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// ModelLayout describes a model on the device, as strategies need it.
type ModelLayout struct {
	// Params are all parameters, in the order of parameters().
	Params []distributed.Param
	// Buffers are the buffers of the modules.
	Buffers []*trace.Tensor
	// Modules are the paths of the modules, Blocks the paths of the modules that are wrapped unless the strategy names
	// others.
	Modules, Blocks []string
	// Linears are the paths of the linear layers.
	Linears []string
	// Sharing are the modules that have a parameter, by its name, besides the one that it is named after.
	Sharing map[string][]string
	// Frozen reports whether this is a model next to the one that is trained, Adapted that its adapters train.
	Frozen, Adapted bool
	// Optimizer is the case's; the zero value is the model's own.
	Optimizer optim.Config
}

// names returns the names of the parameters that are tied to no other.
func (l ModelLayout) names() (out []string) {
	for _, p := range l.Params {
		if p.TiedTo == "" {
			out = append(out, p.Name)
		}
	}
	return out
}

func (l *ModelLayout) params(net *nn.Tree, wanted func(*nn.Parameter) bool) {
	names := net.Names()
	l.Sharing = map[string][]string{}
	for i, p := range net.Parameters {
		if wanted(p) {
			l.Params = append(l.Params, distributed.Param{Name: names[i], Tensor: &p.Tensor, Order: i})
			l.Sharing[names[i]] = net.Sharing(p)
		}
	}
}

// tiesShards reports whether weights are tied after they are sharded, as from_pretrained(distributed_config) does.
// fully_shard then has two parameters with one shard, each with its own all-gather and reduction.
func tiesShards(c models.Case) bool {
	s := c.Strategy
	return s.TPBy != "" && s.Init != models.InitDevice && int64(c.GPUs) > s.TP
}

// sortByName numbers parameters in the order in which from_pretrained loads them.
func (l *ModelLayout) sortByName() {
	order := make([]*distributed.Param, len(l.Params))
	for i := range l.Params {
		order[i] = &l.Params[i]
	}
	slices.SortStableFunc(order, func(a, b *distributed.Param) int {
		return cmp.Or(strings.Compare(a.TiedTo, b.TiedTo), strings.Compare(nn.LoadKey(a.Name), nn.LoadKey(b.Name)))
	})
	for i, p := range order {
		p.Order = i
	}
}

// untie gives each user of a tied weight its own meta parameter until the shards are tied again.
func (l *ModelLayout) untie(t *trace.Tape, net *nn.Tree) {
	for i, p := range net.Parameters {
		own, name := net.Untie(p)
		if own == nil {
			continue
		}
		t.WithoutWeightMemory(func() {
			own.Tensor = t.Hold(t.New("empty_like", program.Weights, p.Tensor.DType(), p.Dims...))
		})
		if p.RequiresGrad() {
			own.Leaf()
		}
		l.Params = append(l.Params, distributed.Param{
			Name: name, Tensor: &own.Tensor, Order: len(l.Params), TiedTo: l.Params[i].Name,
		})
		delete(l.Sharing, l.Params[i].Name)
	}
}
