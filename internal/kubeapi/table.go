package kubeapi

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Table reads of each object only some columns of the table that kubectl shows, which are fields of
// the object by the additionalPrinterColumns of its CustomResourceDefinition. To send whole objects
// costs the API server three times as much, and ten times the bytes: it copies each and writes it
// with its managed fields.
type Table struct {
	// Columns are the names of the columns that are read. A list is read whole if the definition,
	// which may be older than this program, lacks one.
	Columns []string
	// Row returns what is kept of an object, by the texts of its columns; "" for no text.
	Row func(cells []string) (runtime.Object, error)
}

const tableType = "application/json;as=Table;v=v1;g=meta.k8s.io"

// errNoTable says that the answer is no table with the columns.
var errNoTable = errors.New("the answer is no table with the columns that are read")

func asTable(request *rest.Request) *rest.Request {
	return request.SetHeader("Accept", tableType).Param("includeObject", string(metav1.IncludeNone))
}

// tablePage reads a page of a table.
type tablePage struct {
	*Table
	// places are those of the columns in a row; nil until the definitions of the columns have been
	// read, which come before the rows.
	places []int
	cells  []string
}

func (p *tablePage) member(key string, text *jsontext.Decoder, list *metainternalversion.List) error {
	switch key {
	case "columnDefinitions":
		return p.find(text)
	case "rows":
		if p.places == nil {
			return errNoTable
		}
		return each(text, func() error { return p.row(text, list) })
	}
	return text.SkipValue()
}

// find finds the columns among those of the table.
func (p *tablePage) find(text *jsontext.Decoder) error {
	var definitions []metav1.TableColumnDefinition
	if err := json.UnmarshalDecode(text, &definitions); err != nil {
		return err
	}
	p.places, p.cells = make([]int, len(p.Columns)), make([]string, len(p.Columns))
	for i, column := range p.Columns {
		p.places[i] = slices.IndexFunc(definitions, func(d metav1.TableColumnDefinition) bool { return d.Name == column })
		if p.places[i] < 0 {
			return fmt.Errorf("%w: no column %s", errNoTable, column)
		}
	}
	return nil
}

func (p *tablePage) row(text *jsontext.Decoder, list *metainternalversion.List) error {
	clear(p.cells)
	place := 0
	err := members(text, func(key string) error {
		if key != "cells" {
			return text.SkipValue()
		}
		return each(text, func() error {
			i := slices.Index(p.places, place)
			place++
			if i < 0 || text.PeekKind() != jsontext.KindString { // null for no value
				return text.SkipValue()
			}
			cell, err := text.ReadToken()
			p.cells[i] = cell.String()
			return err
		})
	})
	if err != nil {
		return err
	}
	if last := slices.Max(p.places); last >= place {
		return fmt.Errorf("a row has %d cells, and column %s is cell %d", place, p.Columns[slices.Index(p.places, last)], last)
	}
	kept, err := p.Row(p.cells)
	list.Items = append(list.Items, kept)
	return err
}
