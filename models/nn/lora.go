package nn

import (
	"reflect"

	"github.com/vprof/vprof/profiler/trace"
)

// LoRA are the options of low-rank adapters, as peft.LoraConfig has them.
// The scale, alpha/r, has no influence on memory.
type LoRA struct {
	// Rank is r, the width of the bottleneck.
	Rank int64
	// Dropout of what goes into the adapters; 0 for none.
	Dropout float64
}

// LoRALinear is peft's lora.Linear with one adapter: a frozen linear layer and
// a trained bottleneck beside it.
type LoRALinear struct {
	Module
	BaseLayer   *Linear
	LoraDropout Layer   `torch:"lora_dropout.default"`
	LoraA       *Linear `torch:"lora_A.default"`
	LoraB       *Linear `torch:"lora_B.default"`
}

// NewLoRALinear puts an adapter beside base, which it freezes.
func NewLoRALinear(base *Linear, o LoRA) *LoRALinear {
	Freeze(base)
	l := &LoRALinear{
		BaseLayer:   base,
		LoraDropout: NewIdentity(),
		LoraA:       NewLinear(base.Weight.Dims[1], o.Rank, false),
		LoraB:       NewLinear(o.Rank, base.Weight.Dims[0], false),
	}
	if o.Dropout > 0 {
		l.LoraDropout = NewDropout(o.Dropout)
	}
	return l
}

// Forward maps [..., in] to [..., out] in the type of the base layer's result.
// The adapter takes its input in the type of its weights, whatever autocast
// makes of it afterwards.
func (l *LoRALinear) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	result := f.Let(f.Call(l.BaseLayer, x))
	dtype := result.DType()
	f.Set(&x, x.To(l.LoraA.Weight.DType))
	f.Set(&result, result.Add(f.Call(l.LoraB, f.Call(l.LoraA, f.Call(l.LoraDropout, x))).MulScalar()))
	return result.To(dtype)
}

// AdaptLinears is peft.get_peft_model(model, LoraConfig(target_modules=
// "all-linear")): it freezes the model, a pointer to a struct that embeds
// [Module], puts an adapter beside every linear layer of it but those given,
// such as the output layer of a language model, and returns the adapters in the
// order of the layers. What it can replace are fields, and elements of lists, of
// type [Layer].
func AdaptLinears(model any, o LoRA, but ...*Linear) []*LoRALinear {
	Freeze(model)
	a := adaptation{o: o, seen: map[uintptr]bool{}}
	for _, l := range but {
		a.seen[reflect.ValueOf(l).Pointer()] = true
	}
	a.walk(reflect.ValueOf(model))
	return a.made
}

// adaptation is a walk through a model that replaces layers.
type adaptation struct {
	o    LoRA
	made []*LoRALinear
	seen map[uintptr]bool
}

func (a *adaptation) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		a.place(v)
	case reflect.Slice:
		for i := range v.Len() {
			a.walk(v.Index(i))
		}
	case reflect.Pointer:
		if v.IsNil() || v.Elem().Kind() != reflect.Struct || a.seen[v.Pointer()] {
			return
		}
		a.seen[v.Pointer()] = true
		for i := range v.Elem().NumField() {
			if v.Elem().Type().Field(i).IsExported() {
				a.walk(v.Elem().Field(i))
			}
		}
	}
}

// place looks at a field or element that holds any layer.
func (a *adaptation) place(v reflect.Value) {
	if v.IsNil() {
		return
	}
	l, linear := v.Interface().(*Linear)
	if !linear {
		a.walk(v.Elem())
		return
	}
	if !a.seen[v.Elem().Pointer()] && v.CanSet() {
		adapted := NewLoRALinear(l, a.o)
		a.made = append(a.made, adapted)
		v.Set(reflect.ValueOf(adapted))
	}
}
