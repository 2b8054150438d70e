package export

// argument reads a tagged value: {"as_tensor": {"name": "x"}}.
func (d *decoder) argument() Argument {
	var a Argument
	d.object(func(tag string) { a = d.tagged(tag) })
	return a
}

// tagged reads the value after a tag.
func (d *decoder) tagged(tag string) Argument {
	if d.null() {
		return Argument{}
	}
	switch tag {
	case "as_none":
		return Argument{}
	case "as_tensor":
		return d.reference()
	case "as_tensors":
		return d.list(d.reference)
	case "as_optional_tensors":
		return d.list(func() Argument { return d.argument() })
	case "as_optional_tensor":
		return d.argument()
	case "as_nested_tensors":
		return d.list(func() Argument { return d.list(d.reference) })
	case "as_int":
		return Argument{Kind: Integer, Int: d.integer()}
	case "as_ints":
		return d.list(func() Argument { return Argument{Kind: Integer, Int: d.integer()} })
	case "as_float":
		return Argument{Kind: Real, Real: d.number()}
	case "as_floats":
		return d.list(func() Argument { return Argument{Kind: Real, Real: d.number()} })
	case "as_complex":
		d.skip()
		return Argument{Kind: Imaginary}
	case "as_bool":
		return d.truth()
	case "as_bools":
		return d.list(d.truth)
	case "as_sym_int", "as_sym_bool", "as_sym_float":
		return d.symbolic()
	case "as_sym_ints", "as_sym_bools", "as_sym_floats":
		return d.list(d.symbolic)
	case "as_string":
		return Argument{Kind: Text, Text: d.text()}
	case "as_scalar_type":
		return Argument{Kind: Type, Int: d.integer()}
	case "as_memory_format":
		return Argument{Kind: MemoryFormat, Int: d.integer()}
	case "as_int_lists":
		return d.list(func() Argument {
			return d.list(func() Argument { return Argument{Kind: Integer, Int: d.integer()} })
		})
	default: // devices, layouts, objects, strings of operators
		return Argument{Kind: Opaque}
	}
}

func (d *decoder) truth() Argument {
	a := Argument{Kind: Boolean}
	if d.boolean() {
		a.Int = 1
	}
	return a
}

func (d *decoder) list(element func() Argument) Argument {
	a := Argument{Kind: List}
	d.array(func() { a.List = append(a.List, element()) })
	return a
}

// reference reads {"name": "x"}.
func (d *decoder) reference() Argument {
	a := Argument{}
	d.object(func(key string) {
		if key == "name" {
			a = Argument{Kind: Ref, Ref: d.valueOf(d.text())}
		}
	})
	return a
}

// symbolic reads {"as_name": "n"} or {"as_int": 3}.
func (d *decoder) symbolic() Argument {
	a := Argument{}
	d.object(func(key string) {
		switch key {
		case "as_name":
			a = Argument{Kind: Ref, Ref: d.valueOf(d.text())}
		case "as_int":
			a = Argument{Kind: Integer, Int: d.integer()}
		case "as_float":
			a = Argument{Kind: Real, Real: d.number()}
		case "as_bool":
			a = d.truth()
		}
	})
	return a
}
