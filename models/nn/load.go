package nn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Load is from_pretrained of transformers 5 to a device (caching_allocator_warmup and
// convert_and_load_state_dict_in_model): a block as large as the model, which is freed, and parameters out of it in the
// order of their names (dot_natural_key). With widen, frozen parameters that are not packed are read in a type and
// copied to fp32 one after the other then, which is peft's prepare_model_for_kbit_training.
func (t *Tree) Load(tape *trace.Tape, read trace.DType, widen bool) {
	var all, widened []*Parameter
	var bytes int64
	keys := map[*Parameter]string{}
	for i, p := range t.Parameters {
		if p.movesLater {
			continue
		}
		if widen && p.load == nil && p.DType == trace.F32 {
			p.DType, widened = read, append(widened, p)
		}
		all = append(all, p)
		keys[p] = loadKey(join(t.names[i].module, t.names[i].own))
		bytes += p.Numel() * p.DType.Size()
	}
	tape.Release(tape.Hold(tape.New("empty", program.Temporaries, trace.U8, bytes)))
	slices.SortStableFunc(all, func(a, b *Parameter) int { return strings.Compare(keys[a], keys[b]) })
	for _, p := range all {
		if !p.returns {
			t.bring(tape, p)
			continue
		}
		asRead := tape.Hold(tape.New(moving, program.Temporaries, read, p.Dims...))
		t.bring(tape, p)
		tape.Release(asRead)
	}
	for _, m := range t.moved {
		if _, is := m.(*Parameter); !is {
			t.bring(tape, m)
		}
	}
	for _, p := range widened {
		narrow := p.Tensor
		p.DType = trace.F32
		p.Tensor = tape.Hold(tape.New("to_copy", program.Weights, p.DType, p.Dims...))
		tape.Release(narrow)
	}
}

// loadKey is a name in a form that sorts as transformers sorts names: part by part, numbers by their value and first.
func loadKey(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		text := strings.TrimRight(p, "0123456789")
		parts[i] = fmt.Sprintf("%s\x01%12s", text, p[len(text):])
	}
	return strings.Join(parts, "\x00")
}
