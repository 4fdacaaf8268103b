package provisioner

import (
	"errors"
	"reflect"
	"testing"
)

func TestWhatIsUnimplementedSaysSo(t *testing.T) {
	parts := []any{
		UnimplementedCloud{}.Disks(), UnimplementedCloud{}.Snapshots(), UnimplementedCloud{}.Attachments(),
		UnimplementedCloud{}.Instances(), UnimplementedCloud{}.SKUs(),
		UnimplementedHost{}.Devices(), UnimplementedHost{}.Tuner(), UnimplementedHost{}.Filesystems(),
		UnimplementedHost{}.Mounts(), UnimplementedHost{}.Reservations(),
	}
	for _, part := range parts {
		value := reflect.ValueOf(part)
		for i := range value.NumMethod() {
			method := value.Method(i)
			arguments := make([]reflect.Value, method.Type().NumIn())
			for k := range arguments {
				arguments[k] = reflect.Zero(method.Type().In(k))
			}
			name := value.Type().Name() + "." + value.Type().Method(i).Name
			for _, result := range method.Call(arguments) {
				if result.Type() != reflect.TypeFor[error]() {
					if !result.IsZero() {
						t.Errorf("%s returns %v, want nothing", name, result)
					}
					continue
				}
				if err, _ := result.Interface().(error); !errors.Is(err, Unimplemented) {
					t.Errorf("%s returns the error %v, want %v", name, err, Unimplemented)
				}
			}
		}
	}
}
