package pt2

import (
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/trace"
)

// dtypes are the element types that the recorder knows.
var dtypes = map[export.ScalarType]trace.DType{
	export.Byte:     trace.U8,
	export.Char:     trace.U8, // of the same size
	export.Int:      trace.I32,
	export.Long:     trace.I64,
	export.Half:     trace.F16,
	export.Float:    trace.F32,
	export.Double:   trace.F64,
	export.Complex:  trace.C64,
	export.Bool:     trace.Bool,
	export.BFloat16: trace.BF16,
}
