package nn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Loading holds the options by which from_pretrained brings a model to the device.
type Loading struct {
	// Read is the type that parameters are read in. With Widen frozen ones that are not packed are copied to fp32 one
	// after the other then, which is peft's prepare_model_for_kbit_training.
	Read  trace.DType
	Widen bool
	// Asks reports whether a scalar is first allocated on each GPU, to query its free memory (get_max_memory without
	// max_memory).
	Asks bool
}

// Load records from_pretrained of transformers 5 to a device (caching_allocator_warmup and
// convert_and_load_state_dict_in_model): a block as large as the model, freed at once, and parameters out of it in the
// order of their names (dot_natural_key).
func (t *Tree) Load(tape *trace.Tape, l Loading) {
	var all, widened []*Parameter
	var bytes int64
	keys := map[*Parameter]string{}
	for i, p := range t.Parameters {
		if p.movesLater {
			continue
		}
		if d := l.of(p); d != p.DType {
			p.DType, widened = d, append(widened, p)
		}
		all = append(all, p)
		keys[p] = LoadKey(join(t.names[i].module, t.names[i].own))
		if !p.Away {
			bytes += p.Numel() * p.DType.Size()
		}
	}
	tape.OnOtherRank(false, func() { l.warmUp(tape, bytes) })
	slices.SortStableFunc(all, func(a, b *Parameter) int { return strings.Compare(keys[a], keys[b]) })
	for _, p := range all {
		if !p.returns {
			t.bring(tape, p)
			continue
		}
		tape.OnOtherRank(p.Away, func() {
			asRead := tape.Hold(tape.New(moving, program.Temporaries, l.Read, p.Dims...))
			t.bring(tape, p)
			tape.Release(asRead)
		})
	}
	for _, m := range t.moved {
		if _, is := m.(*Parameter); !is {
			t.bring(tape, m)
		}
	}
	for _, p := range widened {
		narrow := p.Tensor
		p.DType = trace.F32
		tape.OnOtherRank(p.Away, func() {
			p.Tensor = tape.Hold(tape.New("to_copy", program.Weights, p.DType, p.Dims...))
		})
		tape.Release(narrow)
		if !p.Frozen {
			p.Leaf()
		}
	}
}

// smallSegment is the size in bytes of the segment that PyTorch's allocator gets for small tensors.
const smallSegment = 2 << 20

// warmUp allocates and frees a block of the model's bytes, less the bytes already reserved.
func (l Loading) warmUp(tape *trace.Tape, bytes int64) {
	if l.Asks {
		tape.Release(tape.Hold(tape.New("to_device", program.Temporaries, trace.I64, 1)))
		if bytes -= smallSegment; bytes <= smallSegment {
			return
		}
	}
	tape.Release(tape.Hold(tape.New("empty", program.Temporaries, trace.U8, bytes)))
}

func (l Loading) of(p *Parameter) trace.DType {
	if l.Widen && p.load == nil && p.DType == trace.F32 {
		return l.Read
	}
	return p.DType
}

// LoadKey returns a key by which names sort as in transformers: part by part, numbers first and by value.
func LoadKey(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		text := strings.TrimRight(p, "0123456789")
		parts[i] = fmt.Sprintf("%s\x01%12s", text, p[len(text):])
	}
	return strings.Join(parts, "\x00")
}
