package nn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Loading holds the options of from_pretrained that affect how parameters reach the GPU.
type Loading struct {
	// Read is the data type in which parameters are loaded. Widen then copies frozen, unquantized parameters to fp32
	// one after the other, as peft's prepare_model_for_kbit_training does.
	Read  trace.DType
	Widen bool
	// QueriesMemory reports whether from_pretrained allocates a scalar on each GPU to query its free memory
	// (get_max_memory without max_memory).
	QueriesMemory bool
}

// Load records from_pretrained of transformers 5 (caching_allocator_warmup and convert_and_load_state_dict_in_model).
// It allocates and frees a block as large as the model, and then takes the parameters out of that block in the order
// of their names (dot_natural_key).
func (t *Tree) Load(tape *trace.Tape, l Loading) {
	var all, widened []*Parameter
	var bytes int64
	keys := map[*Parameter]string{}
	for i, p := range t.Parameters {
		if p.movesLater {
			continue
		}
		if d := l.typeOf(p); d != p.DType {
			p.DType, widened = d, append(widened, p)
		}
		all = append(all, p)
		keys[p] = LoadSortKey(join(t.names[i].module, t.names[i].own))
		if !p.IsElsewhere {
			bytes += p.Numel() * p.DType.Size()
		}
	}
	tape.OnOtherRank(false, func() { l.warmUpAllocator(tape, bytes) })
	slices.SortStableFunc(all, func(a, b *Parameter) int { return strings.Compare(keys[a], keys[b]) })
	for _, p := range all {
		if !p.returns {
			t.moveOne(tape, p)
			continue
		}
		tape.OnOtherRank(p.IsElsewhere, func() {
			asRead := tape.Hold(tape.New(toDevice, program.Temporaries, l.Read, p.Dims...))
			t.moveOne(tape, p)
			tape.Release(asRead)
		})
	}
	for _, m := range t.moved {
		if _, is := m.(*Parameter); !is {
			t.moveOne(tape, m)
		}
	}
	for _, p := range widened {
		narrow := p.Tensor
		p.DType = trace.F32
		tape.OnOtherRank(p.IsElsewhere, func() {
			p.Tensor = tape.Hold(tape.New("to_copy", program.Weights, p.DType, p.Dims...))
		})
		tape.Release(narrow)
		if !p.Frozen {
			p.Leaf()
		}
	}
}

// smallSegment is the size in bytes of the allocator's segments for small tensors.
const smallSegment = 2 << 20

// warmUpAllocator allocates and frees a block as large as the model, minus the bytes that are already reserved.
func (l Loading) warmUpAllocator(tape *trace.Tape, bytes int64) {
	if l.QueriesMemory {
		tape.Release(tape.Hold(tape.New("to_device", program.Temporaries, trace.I64, 1)))
		if bytes -= smallSegment; bytes <= smallSegment {
			return
		}
	}
	tape.Release(tape.Hold(tape.New("empty", program.Temporaries, trace.U8, bytes)))
}

func (l Loading) typeOf(p *Parameter) trace.DType {
	if l.Widen && p.load == nil && p.DType == trace.F32 {
		return l.Read
	}
	return p.DType
}

// LoadSortKey returns a sort key that orders names as transformers does: by parts, numbers by value before words.
func LoadSortKey(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		text := strings.TrimRight(p, "0123456789")
		parts[i] = fmt.Sprintf("%s\x01%12s", text, p[len(text):])
	}
	return strings.Join(parts, "\x00")
}
