"""What stands in each table: pure, one module per noun."""
