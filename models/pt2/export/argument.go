package export

// argument reads an argument with its type tag: {"as_tensor": {"name": "x"}}.
func (d *decoder) argument() Argument {
	var a Argument
	d.object(func(tag string) { a = d.taggedArgument(tag) })
	return a
}

// taggedArgument reads the argument after its type tag, such as {"name": "x"} after "as_tensor".
func (d *decoder) taggedArgument(tag string) Argument {
	if d.null() {
		return Argument{}
	}
	switch tag {
	case "as_none":
		return Argument{}
	case "as_tensor":
		return d.tensorArgument()
	case "as_tensors":
		return d.listArgument(d.tensorArgument)
	case "as_optional_tensors":
		return d.listArgument(func() Argument { return d.argument() })
	case "as_optional_tensor":
		return d.argument()
	case "as_nested_tensors":
		return d.listArgument(func() Argument { return d.listArgument(d.tensorArgument) })
	case "as_int":
		return Argument{Kind: Integer, Int: d.integer()}
	case "as_ints":
		return d.listArgument(func() Argument { return Argument{Kind: Integer, Int: d.integer()} })
	case "as_float":
		return Argument{Kind: Real, Real: d.number()}
	case "as_floats":
		return d.listArgument(func() Argument { return Argument{Kind: Real, Real: d.number()} })
	case "as_complex":
		d.skip()
		return Argument{Kind: Imaginary}
	case "as_bool":
		return d.boolArgument()
	case "as_bools":
		return d.listArgument(d.boolArgument)
	case "as_sym_int", "as_sym_bool", "as_sym_float":
		return d.symbolicArgument()
	case "as_sym_ints", "as_sym_bools", "as_sym_floats":
		return d.listArgument(d.symbolicArgument)
	case "as_string":
		return Argument{Kind: Text, Text: d.text()}
	case "as_scalar_type":
		return Argument{Kind: Type, Int: d.integer()}
	case "as_memory_format":
		return Argument{Kind: MemoryFormat, Int: d.integer()}
	case "as_int_lists":
		return d.listArgument(func() Argument {
			return d.listArgument(func() Argument { return Argument{Kind: Integer, Int: d.integer()} })
		})
	default: // devices, layouts, objects, strings of operators
		return Argument{Kind: Opaque}
	}
}

func (d *decoder) boolArgument() Argument {
	a := Argument{Kind: Boolean}
	if d.boolean() {
		a.Int = 1
	}
	return a
}

func (d *decoder) listArgument(element func() Argument) Argument {
	a := Argument{Kind: List}
	d.array(func() { a.List = append(a.List, element()) })
	return a
}

// tensorArgument reads the reference to a tensor: {"name": "x"}.
func (d *decoder) tensorArgument() Argument {
	a := Argument{}
	d.object(func(key string) {
		if key == "name" {
			a = Argument{Kind: Ref, Ref: d.valueOf(d.text())}
		}
	})
	return a
}

// symbolicArgument reads a number or the name of a symbolic one: {"as_name": "n"} or {"as_int": 3}.
func (d *decoder) symbolicArgument() Argument {
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
			a = d.boolArgument()
		}
	})
	return a
}
