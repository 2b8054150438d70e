package train

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// ModelLayout is what strategies need to know about a model on the GPU.
type ModelLayout struct {
	// Params are all parameters in the order of PyTorch's parameters().
	Params  []distributed.Param
	Buffers []*trace.Tensor
	// Modules are the paths of all modules. Blocks are the paths of the modules that are wrapped by default.
	Modules, Blocks []string
	// Linears are the paths of the linear layers.
	Linears []string
	// Sharing maps the names of tied parameters to the modules that share them, without the module that names them.
	Sharing map[string][]string
	// Frozen reports whether this is a reference model, not the trained one. Adapted: only adapters are trained.
	Frozen, Adapted bool
	// Optimizer is the case's optimizer; zero for the model's own.
	Optimizer optim.Config
}

// untiedNames returns the names of the parameters that are not tied to another.
func (l ModelLayout) untiedNames() []string {
	own := lists.Filter(l.Params, func(p distributed.Param) bool { return p.TiedTo == "" })
	return lists.Map(own, func(p distributed.Param) string { return p.Name })
}

func (l *ModelLayout) addParams(net *nn.Tree, wanted func(*nn.Parameter) bool) {
	names := net.Names()
	l.Sharing = map[string][]string{}
	for i, p := range net.Parameters {
		if wanted(p) {
			l.Params = append(l.Params, distributed.Param{Name: names[i], Tensor: &p.Tensor, Order: i})
			l.Sharing[names[i]] = net.SharingModules(p)
		}
	}
}

// tiesShards reports whether weights are tied after they are sharded, as from_pretrained(distributed_config) does.
// fully_shard then has two parameters with one shard, and each has its own all-gather and reduction.
func tiesShards(c models.Case) bool {
	s := c.Strategy
	return s.TPPlan != "" && s.Init != models.InitDevice && int64(c.GPUs) > s.TP
}

// sortByName sorts parameters in the order in which from_pretrained loads them.
func (l *ModelLayout) sortByName() {
	order := lists.Make(len(l.Params), func(i int) *distributed.Param { return &l.Params[i] })
	slices.SortStableFunc(order, func(a, b *distributed.Param) int {
		return cmp.Or(strings.Compare(a.TiedTo, b.TiedTo),
			strings.Compare(nn.LoadSortKey(a.Name), nn.LoadSortKey(b.Name)))
	})
	for i, p := range order {
		p.Order = i
	}
}

// untieWeights gives each module with a tied weight its own meta parameter until the shards are tied again.
func (l *ModelLayout) untieWeights(t *trace.Tape, net *nn.Tree) {
	for i, p := range net.Parameters {
		own, name := net.UntieParameter(p)
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
